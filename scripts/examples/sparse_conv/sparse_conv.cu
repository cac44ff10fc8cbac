#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "sparse_conv.h"

namespace {

constexpr int kThreads = 256;

unsigned blocks(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

__device__ int64_t thread() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

// FNV-1a, as in sparse_conv.cpp. `offsets` may be null.
__global__ void hash(const int32_t *coordinates, const int32_t *offsets, int64_t *keys, int64_t size, int64_t n) {
  const int64_t i = thread();
  if (i >= size) return;
  const int32_t *at = coordinates + 4 * (i % n);
  const int32_t *offset = offsets == nullptr ? nullptr : offsets + 3 * (i / n);
  unsigned long long found = 14695981039346656037ULL;
  for (int k = 0; k < 4; ++k) {
    found ^= static_cast<uint32_t>(at[k] + (k > 0 && offset != nullptr ? offset[k - 1] : 0));
    found *= 1099511628211ULL;
  }
  keys[i] = static_cast<int64_t>(found >> 1);
}

template <typename T>
__global__ void add_means(const T *features, const int64_t *voxel, const int64_t *counts, T *out, int64_t size,
                          int64_t channels) {
  const int64_t i = thread();
  if (i >= size) return;
  const int64_t v = voxel[i / channels];
  atomicAdd(out + v * channels + i % channels, features[i] / static_cast<T>(counts[v]));
}

template <typename T>
__global__ void spread_means(const T *grad, const int64_t *voxel, const int64_t *counts, T *grad_features, int64_t size,
                             int64_t channels) {
  const int64_t i = thread();
  if (i >= size) return;
  const int64_t v = voxel[i / channels];
  grad_features[i] = grad[v * channels + i % channels] / static_cast<T>(counts[v]);
}

template <typename T>
__global__ void gather_corners(const T *features, const int64_t *corners, const T *weight, T *out, int64_t size,
                               int64_t channels) {
  const int64_t i = thread();
  if (i >= size) return;
  const int64_t first = i / channels * 8;
  T sum = 0;
  for (int64_t k = first; k < first + 8; ++k) {
    if (corners[k] >= 0) sum += weight[k] * features[corners[k] * channels + i % channels];
  }
  out[i] = sum;
}

template <typename T>
__global__ void scatter_corners(const T *grad, const int64_t *corners, const T *weight, T *grad_features, int64_t size,
                                int64_t channels) {
  const int64_t i = thread();
  if (i >= size) return;
  const int64_t first = i / channels * 8;
  for (int64_t k = first; k < first + 8; ++k) {
    if (corners[k] >= 0) atomicAdd(grad_features + corners[k] * channels + i % channels, weight[k] * grad[i]);
  }
}

}  // namespace

at::Tensor hash_coordinates(const at::Tensor &coordinates_input, const std::optional<at::Tensor> &offsets_input) {
  check_coordinates(coordinates_input, offsets_input);
  const at::Tensor coordinates = coordinates_input.contiguous();
  const at::Tensor offsets = offsets_input ? offsets_input->contiguous() : at::Tensor();
  const int64_t n = coordinates.size(0);
  const auto options = coordinates.options().dtype(at::kLong);
  at::Tensor keys = offsets.defined() ? at::empty({offsets.size(0), n}, options) : at::empty({n}, options);
  if (keys.numel() == 0) return keys;
  hash<<<blocks(keys.numel()), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      coordinates.const_data_ptr<int32_t>(), offsets.defined() ? offsets.const_data_ptr<int32_t>() : nullptr,
      keys.mutable_data_ptr<int64_t>(), keys.numel(), n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return keys;
}

void voxelize(const at::Tensor &features_input, const at::Tensor &voxel_input, const at::Tensor &counts_input,
              at::Tensor &out) {
  check_voxels(features_input, voxel_input, counts_input);
  const at::Tensor features = features_input.contiguous(), voxel = voxel_input.contiguous(),
                   counts = counts_input.contiguous();
  const int64_t size = features.numel();
  if (size == 0) return;
  AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "voxelize", [&] {
    add_means<<<blocks(size), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        features.const_data_ptr<scalar_t>(), voxel.const_data_ptr<int64_t>(), counts.const_data_ptr<int64_t>(),
        out.mutable_data_ptr<scalar_t>(), size, features.size(1));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor voxelize_backward(const at::Tensor &grad_input, const at::Tensor &voxel_input,
                             const at::Tensor &counts_input) {
  const at::Tensor grad = grad_input.contiguous(), voxel = voxel_input.contiguous(), counts = counts_input.contiguous();
  at::Tensor grad_features = at::empty({voxel.size(0), grad.size(1)}, grad.options());
  const int64_t size = grad_features.numel();
  if (size == 0) return grad_features;
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "voxelize_backward", [&] {
    spread_means<<<blocks(size), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        grad.const_data_ptr<scalar_t>(), voxel.const_data_ptr<int64_t>(), counts.const_data_ptr<int64_t>(),
        grad_features.mutable_data_ptr<scalar_t>(), size, grad.size(1));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grad_features;
}

at::Tensor devoxelize(const at::Tensor &features_input, const at::Tensor &corners_input,
                      const at::Tensor &weight_input) {
  check_corners(features_input, corners_input, weight_input);
  const at::Tensor features = features_input.contiguous(), corners = corners_input.contiguous(),
                   weight = weight_input.contiguous();
  at::Tensor out = at::empty({corners.size(0), features.size(1)}, features.options());
  const int64_t size = out.numel();
  if (size == 0) return out;
  AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "devoxelize", [&] {
    gather_corners<<<blocks(size), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        features.const_data_ptr<scalar_t>(), corners.const_data_ptr<int64_t>(), weight.const_data_ptr<scalar_t>(),
        out.mutable_data_ptr<scalar_t>(), size, features.size(1));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

at::Tensor devoxelize_backward(const at::Tensor &grad_input, const at::Tensor &corners_input,
                               const at::Tensor &weight_input, const at::Tensor &features) {
  const at::Tensor grad = grad_input.contiguous(), corners = corners_input.contiguous(),
                   weight = weight_input.contiguous();
  at::Tensor grad_features = at::zeros_like(features, at::MemoryFormat::Contiguous);
  const int64_t size = grad.numel();
  if (size == 0) return grad_features;
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "devoxelize_backward", [&] {
    scatter_corners<<<blocks(size), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        grad.const_data_ptr<scalar_t>(), corners.const_data_ptr<int64_t>(), weight.const_data_ptr<scalar_t>(),
        grad_features.mutable_data_ptr<scalar_t>(), size, features.size(1));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grad_features;
}

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <limits>

#include "pointnet2.h"

namespace {

constexpr int kThreads = 256;

unsigned blocks(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

__device__ int64_t thread() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

template <typename T>
__device__ T squared_distance(const T *a, const T *b) {
  const T x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
  return x * x + y * y + z * z;
}

// A block for each cloud. Each thread keeps the first furthest of its points; the block finds the first furthest of
// all.
template <typename T>
__global__ void sample(const T *xyz, T *distance, int64_t *index, int64_t n, int64_t count) {
  __shared__ T furthest[kThreads];
  __shared__ int64_t which[kThreads];
  const T *points = xyz + blockIdx.x * n * 3;
  T *nearest = distance + blockIdx.x * n;
  int64_t *taken = index + blockIdx.x * count;
  int64_t last = 0;
  if (threadIdx.x == 0) taken[0] = 0;
  for (int64_t i = 1; i < count; ++i) {
    T best = -1;
    int64_t best_point = 0;
    for (int64_t p = threadIdx.x; p < n; p += kThreads) {
      const T found = min(nearest[p], squared_distance(points + 3 * p, points + 3 * last));
      nearest[p] = found;
      if (found > best) {
        best = found;
        best_point = p;
      }
    }
    furthest[threadIdx.x] = best;
    which[threadIdx.x] = best_point;
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x >= half) continue;
      const int other = threadIdx.x + half;
      if (furthest[other] > furthest[threadIdx.x] ||
          (furthest[other] == furthest[threadIdx.x] && which[other] < which[threadIdx.x])) {
        furthest[threadIdx.x] = furthest[other];
        which[threadIdx.x] = which[other];
      }
    }
    __syncthreads();
    last = which[0];
    if (threadIdx.x == 0) taken[i] = last;
    __syncthreads();
  }
}

template <typename T>
__global__ void query(const T *centres, const T *xyz, T limit, int64_t *index, int64_t rows, int64_t m, int64_t n,
                      int64_t count) {
  const int64_t row = thread();
  if (row >= rows) return;
  const T *points = xyz + row / m * n * 3;
  int64_t *found = index + row * count;
  int64_t have = 0;
  for (int64_t p = 0; p < n && have < count; ++p) {
    if (squared_distance(centres + 3 * row, points + 3 * p) < limit) found[have++] = p;
  }
  const int64_t filler = have == 0 ? 0 : found[0];
  for (; have < count; ++have) found[have] = filler;
}

template <typename T>
__global__ void group(const T *features, const int64_t *index, T *grouped, int64_t size, int64_t channels, int64_t n,
                      int64_t places) {
  const int64_t i = thread();
  if (i >= size) return;
  const int64_t row = i / places;
  grouped[i] = features[row * n + index[row / channels * places + i % places]];
}

template <typename T>
__global__ void group_backward(const T *grad, const int64_t *index, T *grad_features, int64_t size, int64_t channels,
                               int64_t n, int64_t places) {
  const int64_t i = thread();
  if (i >= size) return;
  const int64_t row = i / places;
  atomicAdd(grad_features + row * n + index[row / channels * places + i % places], grad[i]);
}

template <typename T>
__global__ void nearest_three(const T *unknown, const T *known, T *distance, int64_t *index, int64_t rows, int64_t n,
                              int64_t m) {
  const int64_t row = thread();
  if (row >= rows) return;
  const T *points = known + row / n * m * 3;
  T best[3] = {std::numeric_limits<T>::max(), std::numeric_limits<T>::max(), std::numeric_limits<T>::max()};
  int64_t which[3] = {0, 0, 0};
  for (int64_t p = 0; p < m; ++p) {
    const T found = squared_distance(unknown + 3 * row, points + 3 * p);
    int place = 3;
    while (place > 0 && found < best[place - 1]) --place;
    for (int k = 2; k > place; --k) {
      best[k] = best[k - 1];
      which[k] = which[k - 1];
    }
    if (place < 3) {
      best[place] = found;
      which[place] = p;
    }
  }
  for (int k = 0; k < 3; ++k) {
    distance[3 * row + k] = best[k];
    index[3 * row + k] = which[k];
  }
}

template <typename T>
__global__ void interpolate(const T *features, const int64_t *index, const T *weight, T *out, int64_t size,
                            int64_t channels, int64_t m, int64_t n) {
  const int64_t i = thread();
  if (i >= size) return;
  const int64_t row = i / n, first = (row / channels * n + i % n) * 3;
  T sum = 0;
  for (int64_t j = first; j < first + 3; ++j) sum += weight[j] * features[row * m + index[j]];
  out[i] = sum;
}

template <typename T>
__global__ void interpolate_backward(const T *grad, const int64_t *index, const T *weight, T *grad_features,
                                     int64_t size, int64_t channels, int64_t m, int64_t n) {
  const int64_t i = thread();
  if (i >= size) return;
  const int64_t row = i / n, first = (row / channels * n + i % n) * 3;
  for (int64_t j = first; j < first + 3; ++j) atomicAdd(grad_features + row * m + index[j], weight[j] * grad[i]);
}

}  // namespace

at::Tensor furthest_point_sampling(const at::Tensor &input, int64_t count) {
  check_points("xyz", input);
  const at::Tensor xyz = input.contiguous();
  const int64_t batch = xyz.size(0), n = xyz.size(1);
  TORCH_CHECK(count >= 1 && count <= n, "count must be between 1 and the ", n, " points, not ", count);
  at::Tensor index = at::empty({batch, count}, xyz.options().dtype(at::kLong));
  if (batch == 0) return index;
  AT_DISPATCH_FLOATING_TYPES(xyz.scalar_type(), "furthest_point_sampling", [&] {
    at::Tensor distance = at::full({batch, n}, std::numeric_limits<scalar_t>::max(), xyz.options());
    sample<<<static_cast<unsigned>(batch), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        xyz.const_data_ptr<scalar_t>(), distance.mutable_data_ptr<scalar_t>(), index.mutable_data_ptr<int64_t>(), n,
        count);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return index;
}

at::Tensor ball_query(const at::Tensor &centres_input, const at::Tensor &xyz_input, double radius, int64_t count) {
  check_points("centres", centres_input);
  check_points("xyz", xyz_input);
  check_same_cloud(centres_input, xyz_input);
  TORCH_CHECK(count >= 1, "count must be positive, not ", count);
  const at::Tensor centres = centres_input.contiguous(), xyz = xyz_input.contiguous();
  const int64_t batch = xyz.size(0), m = centres.size(1), n = xyz.size(1), rows = batch * m;
  at::Tensor index = at::empty({batch, m, count}, xyz.options().dtype(at::kLong));
  if (rows == 0) return index;
  AT_DISPATCH_FLOATING_TYPES(xyz.scalar_type(), "ball_query", [&] {
    query<<<blocks(rows), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        centres.const_data_ptr<scalar_t>(), xyz.const_data_ptr<scalar_t>(), static_cast<scalar_t>(radius * radius),
        index.mutable_data_ptr<int64_t>(), rows, m, n, count);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return index;
}

at::Tensor group_points(const at::Tensor &features_input, const at::Tensor &index_input) {
  check_index(features_input, index_input);
  const at::Tensor features = features_input.contiguous(), index = index_input.contiguous();
  const int64_t channels = features.size(1), n = features.size(2), places = index.size(1) * index.size(2);
  at::Tensor grouped = at::empty({features.size(0), channels, index.size(1), index.size(2)}, features.options());
  const int64_t size = grouped.numel();
  if (size == 0) return grouped;
  AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "group_points", [&] {
    group<<<blocks(size), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        features.const_data_ptr<scalar_t>(), index.const_data_ptr<int64_t>(), grouped.mutable_data_ptr<scalar_t>(),
        size, channels, n, places);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grouped;
}

at::Tensor group_points_backward(const at::Tensor &grad_input, const at::Tensor &index_input,
                                 const at::Tensor &features) {
  const at::Tensor grad = grad_input.contiguous(), index = index_input.contiguous();
  at::Tensor grad_features = at::zeros_like(features, at::MemoryFormat::Contiguous);
  const int64_t size = grad.numel(), places = index.size(1) * index.size(2);
  if (size == 0) return grad_features;
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "group_points_backward", [&] {
    group_backward<<<blocks(size), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        grad.const_data_ptr<scalar_t>(), index.const_data_ptr<int64_t>(), grad_features.mutable_data_ptr<scalar_t>(),
        size, features.size(1), features.size(2), places);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grad_features;
}

std::tuple<at::Tensor, at::Tensor> three_nn(const at::Tensor &unknown_input, const at::Tensor &known_input) {
  check_points("unknown", unknown_input);
  check_points("known", known_input);
  check_same_cloud(unknown_input, known_input);
  const at::Tensor unknown = unknown_input.contiguous(), known = known_input.contiguous();
  const int64_t batch = unknown.size(0), n = unknown.size(1), m = known.size(1), rows = batch * n;
  TORCH_CHECK(m >= 3, "known must have at least 3 points, not ", m);
  at::Tensor distance = at::empty({batch, n, 3}, unknown.options());
  at::Tensor index = at::empty({batch, n, 3}, unknown.options().dtype(at::kLong));
  if (rows == 0) return {distance, index};
  AT_DISPATCH_FLOATING_TYPES(unknown.scalar_type(), "three_nn", [&] {
    nearest_three<<<blocks(rows), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        unknown.const_data_ptr<scalar_t>(), known.const_data_ptr<scalar_t>(), distance.mutable_data_ptr<scalar_t>(),
        index.mutable_data_ptr<int64_t>(), rows, n, m);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {distance, index};
}

at::Tensor three_interpolate(const at::Tensor &features_input, const at::Tensor &index_input,
                             const at::Tensor &weight_input) {
  check_weight(features_input, index_input, weight_input);
  const at::Tensor features = features_input.contiguous(), index = index_input.contiguous(),
                   weight = weight_input.contiguous();
  const int64_t channels = features.size(1), m = features.size(2), n = index.size(1);
  at::Tensor out = at::empty({features.size(0), channels, n}, features.options());
  const int64_t size = out.numel();
  if (size == 0) return out;
  AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "three_interpolate", [&] {
    interpolate<<<blocks(size), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        features.const_data_ptr<scalar_t>(), index.const_data_ptr<int64_t>(), weight.const_data_ptr<scalar_t>(),
        out.mutable_data_ptr<scalar_t>(), size, channels, m, n);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

at::Tensor three_interpolate_backward(const at::Tensor &grad_input, const at::Tensor &index_input,
                                      const at::Tensor &weight_input, const at::Tensor &features) {
  const at::Tensor grad = grad_input.contiguous(), index = index_input.contiguous(), weight = weight_input.contiguous();
  at::Tensor grad_features = at::zeros_like(features, at::MemoryFormat::Contiguous);
  const int64_t size = grad.numel();
  if (size == 0) return grad_features;
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "three_interpolate_backward", [&] {
    interpolate_backward<<<blocks(size), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        grad.const_data_ptr<scalar_t>(), index.const_data_ptr<int64_t>(), weight.const_data_ptr<scalar_t>(),
        grad_features.mutable_data_ptr<scalar_t>(), size, features.size(1), features.size(2), index.size(1));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grad_features;
}

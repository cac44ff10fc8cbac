#include "sparse_conv.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace {

// FNV-1a over the four numbers, without the sign bit: keys are never negative.
int64_t key(const int32_t *at, const int32_t *offset) {
  uint64_t hash = 14695981039346656037ULL;
  for (int i = 0; i < 4; ++i) {
    hash ^= static_cast<uint32_t>(at[i] + (i > 0 && offset != nullptr ? offset[i - 1] : 0));
    hash *= 1099511628211ULL;
  }
  return static_cast<int64_t>(hash >> 1);
}

}  // namespace

at::Tensor hash_coordinates(const at::Tensor &coordinates_input, const std::optional<at::Tensor> &offsets_input) {
  check_coordinates(coordinates_input, offsets_input);
  const at::Tensor coordinates = coordinates_input.contiguous();
  const int64_t n = coordinates.size(0);
  const int32_t *at = coordinates.const_data_ptr<int32_t>();
  const auto options = coordinates.options().dtype(at::kLong);
  if (!offsets_input) {
    at::Tensor keys = at::empty({n}, options);
    for (int64_t i = 0; i < n; ++i) keys.mutable_data_ptr<int64_t>()[i] = key(at + 4 * i, nullptr);
    return keys;
  }
  const at::Tensor offsets = offsets_input->contiguous();
  at::Tensor keys = at::empty({offsets.size(0), n}, options);
  for (int64_t i = 0; i < keys.numel(); ++i) {
    keys.mutable_data_ptr<int64_t>()[i] = key(at + 4 * (i % n), offsets.const_data_ptr<int32_t>() + 3 * (i / n));
  }
  return keys;
}

void voxelize(const at::Tensor &features_input, const at::Tensor &voxel_input, const at::Tensor &counts_input,
              at::Tensor &out) {
  check_voxels(features_input, voxel_input, counts_input);
  const at::Tensor features = features_input.contiguous(), voxel = voxel_input.contiguous(),
                   counts = counts_input.contiguous();
  const int64_t channels = features.size(1);
  AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "voxelize", [&] {
    const scalar_t *from = features.const_data_ptr<scalar_t>();
    scalar_t *to = out.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < features.numel(); ++i) {
      const int64_t v = voxel.const_data_ptr<int64_t>()[i / channels];
      to[v * channels + i % channels] += from[i] / static_cast<scalar_t>(counts.const_data_ptr<int64_t>()[v]);
    }
  });
}

at::Tensor voxelize_backward(const at::Tensor &grad_input, const at::Tensor &voxel_input,
                             const at::Tensor &counts_input) {
  const at::Tensor grad = grad_input.contiguous(), voxel = voxel_input.contiguous(), counts = counts_input.contiguous();
  const int64_t channels = grad.size(1);
  at::Tensor grad_features = at::empty({voxel.size(0), channels}, grad.options());
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "voxelize_backward", [&] {
    const scalar_t *from = grad.const_data_ptr<scalar_t>();
    scalar_t *to = grad_features.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < grad_features.numel(); ++i) {
      const int64_t v = voxel.const_data_ptr<int64_t>()[i / channels];
      to[i] = from[v * channels + i % channels] / static_cast<scalar_t>(counts.const_data_ptr<int64_t>()[v]);
    }
  });
  return grad_features;
}

at::Tensor devoxelize(const at::Tensor &features_input, const at::Tensor &corners_input,
                      const at::Tensor &weight_input) {
  check_corners(features_input, corners_input, weight_input);
  const at::Tensor features = features_input.contiguous(), corners = corners_input.contiguous(),
                   weight = weight_input.contiguous();
  const int64_t n = corners.size(0), channels = features.size(1);
  at::Tensor out = at::zeros({n, channels}, features.options());
  AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "devoxelize", [&] {
    const scalar_t *from = features.const_data_ptr<scalar_t>();
    scalar_t *to = out.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < 8 * n; ++i) {
      const int64_t v = corners.const_data_ptr<int64_t>()[i];
      if (v < 0) continue;
      const scalar_t share = weight.const_data_ptr<scalar_t>()[i];
      for (int64_t c = 0; c < channels; ++c) to[i / 8 * channels + c] += share * from[v * channels + c];
    }
  });
  return out;
}

at::Tensor devoxelize_backward(const at::Tensor &grad_input, const at::Tensor &corners_input,
                               const at::Tensor &weight_input, const at::Tensor &features) {
  const at::Tensor grad = grad_input.contiguous(), corners = corners_input.contiguous(),
                   weight = weight_input.contiguous();
  const int64_t n = corners.size(0), channels = features.size(1);
  at::Tensor grad_features = at::zeros_like(features, at::MemoryFormat::Contiguous);
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "devoxelize_backward", [&] {
    const scalar_t *from = grad.const_data_ptr<scalar_t>();
    scalar_t *to = grad_features.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < 8 * n; ++i) {
      const int64_t v = corners.const_data_ptr<int64_t>()[i];
      if (v < 0) continue;
      const scalar_t share = weight.const_data_ptr<scalar_t>()[i];
      for (int64_t c = 0; c < channels; ++c) to[v * channels + c] += share * from[i / 8 * channels + c];
    }
  });
  return grad_features;
}

// What a sparse convolution of point clouds is made of, for the CPU (sparse_conv.cpp) and for CUDA (sparse_conv.cu).
// Coordinates are int32 rows (batch, x, y, z); features are (points or voxels, channels), float32 or float64.
#pragma once

#include <ATen/core/Tensor.h>

// coordinates (n, 4), offsets (k, 3) -> keys of the coordinates moved by each offset, int64 (k, n); without offsets
// (n).
at::Tensor hash_coordinates(const at::Tensor &coordinates, const std::optional<at::Tensor> &offsets);

// features (n, c), voxel (n) int64, counts (m) int64. Adds to out (m, c) the mean of each voxel's points.
void voxelize(const at::Tensor &features, const at::Tensor &voxel, const at::Tensor &counts, at::Tensor &out);
at::Tensor voxelize_backward(const at::Tensor &grad, const at::Tensor &voxel, const at::Tensor &counts);

// features (m, c), corners (n, 8) int64, weight (n, 8) -> (n, c): each point's weighted sum of eight voxels; a corner
// of -1 is no voxel.
at::Tensor devoxelize(const at::Tensor &features, const at::Tensor &corners, const at::Tensor &weight);
at::Tensor devoxelize_backward(const at::Tensor &grad, const at::Tensor &corners, const at::Tensor &weight,
                               const at::Tensor &features);

// The checks of both devices.
inline void check_coordinates(const at::Tensor &coordinates, const std::optional<at::Tensor> &offsets) {
  TORCH_CHECK(coordinates.dim() == 2 && coordinates.size(1) == 4 && coordinates.scalar_type() == at::kInt,
              "coordinates must be int32 (n, 4), not ", coordinates.scalar_type(), " ", coordinates.sizes());
  TORCH_CHECK(!offsets || (offsets->dim() == 2 && offsets->size(1) == 3 && offsets->scalar_type() == at::kInt),
              "offsets must be int32 (k, 3)");
}

inline void check_voxels(const at::Tensor &features, const at::Tensor &voxel, const at::Tensor &counts) {
  TORCH_CHECK(features.dim() == 2, "features must be (n, c), not ", features.sizes());
  TORCH_CHECK(voxel.dim() == 1 && voxel.size(0) == features.size(0) && voxel.scalar_type() == at::kLong,
              "voxel must be int64 (", features.size(0), "), not ", voxel.scalar_type(), " ", voxel.sizes());
  TORCH_CHECK(counts.dim() == 1 && counts.scalar_type() == at::kLong, "counts must be int64 (m)");
}

inline void check_corners(const at::Tensor &features, const at::Tensor &corners, const at::Tensor &weight) {
  TORCH_CHECK(features.dim() == 2, "features must be (m, c), not ", features.sizes());
  TORCH_CHECK(corners.dim() == 2 && corners.size(1) == 8 && corners.scalar_type() == at::kLong,
              "corners must be int64 (n, 8), not ", corners.scalar_type(), " ", corners.sizes());
  TORCH_CHECK(weight.sizes() == corners.sizes() && weight.scalar_type() == features.scalar_type(), "weight must be ",
              features.scalar_type(), " ", corners.sizes());
}

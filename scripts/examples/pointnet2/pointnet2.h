// The operators of PointNet++ on point clouds, for the CPU (pointnet2.cpp) and for CUDA (pointnet2.cu). Coordinates are
// (batch, points, 3), features are (batch, channels, points); both are float32 or float64. Indices are int64.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

// xyz (b, n, 3) -> (b, count): the first point, and then, each time, the first one that is furthest from those taken.
at::Tensor furthest_point_sampling(const at::Tensor &xyz, int64_t count);

// centres (b, m, 3), xyz (b, n, 3) -> (b, m, count): the first points nearer than `radius`. If they are fewer, the
// first of them fills up; if there is none, point 0 does.
at::Tensor ball_query(const at::Tensor &centres, const at::Tensor &xyz, double radius, int64_t count);

// features (b, c, n), index (b, m, k) -> (b, c, m, k), and the gradient of the features.
at::Tensor group_points(const at::Tensor &features, const at::Tensor &index);
at::Tensor group_points_backward(const at::Tensor &grad, const at::Tensor &index, const at::Tensor &features);

// unknown (b, n, 3), known (b, m, 3), m >= 3 -> squared distances (b, n, 3) to the three nearest, and their indices.
std::tuple<at::Tensor, at::Tensor> three_nn(const at::Tensor &unknown, const at::Tensor &known);

// features (b, c, m), index (b, n, 3), weight (b, n, 3) -> (b, c, n), and the gradient of the features.
at::Tensor three_interpolate(const at::Tensor &features, const at::Tensor &index, const at::Tensor &weight);
at::Tensor three_interpolate_backward(const at::Tensor &grad, const at::Tensor &index, const at::Tensor &weight,
                                      const at::Tensor &features);

// The checks of both devices.
inline void check_points(const char *name, const at::Tensor &points) {
  TORCH_CHECK(points.dim() == 3 && points.size(2) == 3, name, " must be (batch, points, 3), not ", points.sizes());
  TORCH_CHECK(points.is_floating_point(), name, " must be floating, not ", points.scalar_type());
}

inline void check_same_cloud(const at::Tensor &a, const at::Tensor &b) {
  TORCH_CHECK(a.size(0) == b.size(0), "the batches differ: ", a.size(0), " and ", b.size(0));
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "the dtypes differ: ", a.scalar_type(), " and ", b.scalar_type());
}

inline void check_index(const at::Tensor &features, const at::Tensor &index) {
  TORCH_CHECK(features.dim() == 3, "features must be (batch, channels, points), not ", features.sizes());
  TORCH_CHECK(index.dim() == 3 && index.size(0) == features.size(0), "index must be (", features.size(0),
              ", points, neighbours), not ", index.sizes());
  TORCH_CHECK(index.scalar_type() == at::kLong, "index must be int64, not ", index.scalar_type());
}

inline void check_weight(const at::Tensor &features, const at::Tensor &index, const at::Tensor &weight) {
  check_index(features, index);
  TORCH_CHECK(index.size(2) == 3 && weight.sizes() == index.sizes(), "index and weight must be (b, n, 3), not ",
              index.sizes(), " and ", weight.sizes());
  TORCH_CHECK(weight.scalar_type() == features.scalar_type(), "the dtypes differ: ", features.scalar_type(), " and ",
              weight.scalar_type());
}

#include "pointnet2.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace {

template <typename T>
T squared_distance(const T *a, const T *b) {
  const T x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
  return x * x + y * y + z * z;
}

}  // namespace

at::Tensor furthest_point_sampling(const at::Tensor &input, int64_t count) {
  check_points("xyz", input);
  const at::Tensor xyz = input.contiguous();
  const int64_t batch = xyz.size(0), n = xyz.size(1);
  TORCH_CHECK(count >= 1 && count <= n, "count must be between 1 and the ", n, " points, not ", count);
  at::Tensor index = at::empty({batch, count}, xyz.options().dtype(at::kLong));
  AT_DISPATCH_FLOATING_TYPES(xyz.scalar_type(), "furthest_point_sampling", [&] {
    for (int64_t b = 0; b < batch; ++b) {
      const scalar_t *points = xyz.const_data_ptr<scalar_t>() + b * n * 3;
      int64_t *taken = index.mutable_data_ptr<int64_t>() + b * count;
      std::vector<scalar_t> distance(static_cast<size_t>(n), std::numeric_limits<scalar_t>::max());
      taken[0] = 0;
      for (int64_t i = 1; i < count; ++i) {
        for (int64_t p = 0; p < n; ++p) {
          auto &nearest = distance[static_cast<size_t>(p)];
          nearest = std::min(nearest, squared_distance(points + 3 * p, points + 3 * taken[i - 1]));
        }
        taken[i] = std::max_element(distance.begin(), distance.end()) - distance.begin();
      }
    }
  });
  return index;
}

at::Tensor ball_query(const at::Tensor &centres_input, const at::Tensor &xyz_input, double radius, int64_t count) {
  check_points("centres", centres_input);
  check_points("xyz", xyz_input);
  check_same_cloud(centres_input, xyz_input);
  TORCH_CHECK(count >= 1, "count must be positive, not ", count);
  const at::Tensor centres = centres_input.contiguous(), xyz = xyz_input.contiguous();
  const int64_t batch = xyz.size(0), m = centres.size(1), n = xyz.size(1);
  at::Tensor index = at::empty({batch, m, count}, xyz.options().dtype(at::kLong));
  AT_DISPATCH_FLOATING_TYPES(xyz.scalar_type(), "ball_query", [&] {
    const auto limit = static_cast<scalar_t>(radius * radius);
    for (int64_t row = 0; row < batch * m; ++row) {
      const scalar_t *centre = centres.const_data_ptr<scalar_t>() + 3 * row;
      const scalar_t *points = xyz.const_data_ptr<scalar_t>() + row / m * n * 3;
      int64_t *found = index.mutable_data_ptr<int64_t>() + row * count;
      int64_t have = 0;
      for (int64_t p = 0; p < n && have < count; ++p) {
        if (squared_distance(centre, points + 3 * p) < limit) found[have++] = p;
      }
      std::fill(found + have, found + count, have == 0 ? 0 : found[0]);
    }
  });
  return index;
}

at::Tensor group_points(const at::Tensor &features_input, const at::Tensor &index_input) {
  check_index(features_input, index_input);
  const at::Tensor features = features_input.contiguous(), index = index_input.contiguous();
  const int64_t batch = features.size(0), channels = features.size(1), n = features.size(2);
  const int64_t places = index.size(1) * index.size(2);
  at::Tensor grouped = at::empty({batch, channels, index.size(1), index.size(2)}, features.options());
  AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "group_points", [&] {
    for (int64_t row = 0; row < batch * channels; ++row) {
      const scalar_t *from = features.const_data_ptr<scalar_t>() + row * n;
      const int64_t *which = index.const_data_ptr<int64_t>() + row / channels * places;
      scalar_t *to = grouped.mutable_data_ptr<scalar_t>() + row * places;
      for (int64_t i = 0; i < places; ++i) to[i] = from[which[i]];
    }
  });
  return grouped;
}

at::Tensor group_points_backward(const at::Tensor &grad_input, const at::Tensor &index_input,
                                 const at::Tensor &features) {
  const at::Tensor grad = grad_input.contiguous(), index = index_input.contiguous();
  at::Tensor grad_features = at::zeros_like(features, at::MemoryFormat::Contiguous);
  const int64_t batch = features.size(0), channels = features.size(1), n = features.size(2);
  const int64_t places = index.size(1) * index.size(2);
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "group_points_backward", [&] {
    for (int64_t row = 0; row < batch * channels; ++row) {
      const scalar_t *from = grad.const_data_ptr<scalar_t>() + row * places;
      const int64_t *which = index.const_data_ptr<int64_t>() + row / channels * places;
      scalar_t *to = grad_features.mutable_data_ptr<scalar_t>() + row * n;
      for (int64_t i = 0; i < places; ++i) to[which[i]] += from[i];
    }
  });
  return grad_features;
}

std::tuple<at::Tensor, at::Tensor> three_nn(const at::Tensor &unknown_input, const at::Tensor &known_input) {
  check_points("unknown", unknown_input);
  check_points("known", known_input);
  check_same_cloud(unknown_input, known_input);
  const at::Tensor unknown = unknown_input.contiguous(), known = known_input.contiguous();
  const int64_t batch = unknown.size(0), n = unknown.size(1), m = known.size(1);
  TORCH_CHECK(m >= 3, "known must have at least 3 points, not ", m);
  at::Tensor distance = at::empty({batch, n, 3}, unknown.options());
  at::Tensor index = at::empty({batch, n, 3}, unknown.options().dtype(at::kLong));
  AT_DISPATCH_FLOATING_TYPES(unknown.scalar_type(), "three_nn", [&] {
    for (int64_t row = 0; row < batch * n; ++row) {
      const scalar_t *point = unknown.const_data_ptr<scalar_t>() + 3 * row;
      const scalar_t *points = known.const_data_ptr<scalar_t>() + row / n * m * 3;
      scalar_t *best = distance.mutable_data_ptr<scalar_t>() + 3 * row;
      int64_t *which = index.mutable_data_ptr<int64_t>() + 3 * row;
      std::fill(best, best + 3, std::numeric_limits<scalar_t>::max());
      for (int64_t p = 0; p < m; ++p) {
        const scalar_t found = squared_distance(point, points + 3 * p);
        int place = 3;
        while (place > 0 && found < best[place - 1]) --place;
        if (place == 3) continue;
        std::copy_backward(best + place, best + 2, best + 3);
        std::copy_backward(which + place, which + 2, which + 3);
        best[place] = found;
        which[place] = p;
      }
    }
  });
  return {distance, index};
}

at::Tensor three_interpolate(const at::Tensor &features_input, const at::Tensor &index_input,
                             const at::Tensor &weight_input) {
  check_weight(features_input, index_input, weight_input);
  const at::Tensor features = features_input.contiguous(), index = index_input.contiguous(),
                   weight = weight_input.contiguous();
  const int64_t batch = features.size(0), channels = features.size(1), m = features.size(2), n = index.size(1);
  at::Tensor out = at::empty({batch, channels, n}, features.options());
  AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "three_interpolate", [&] {
    for (int64_t row = 0; row < batch * channels; ++row) {
      const scalar_t *from = features.const_data_ptr<scalar_t>() + row * m;
      const int64_t *which = index.const_data_ptr<int64_t>() + row / channels * n * 3;
      const scalar_t *share = weight.const_data_ptr<scalar_t>() + row / channels * n * 3;
      scalar_t *to = out.mutable_data_ptr<scalar_t>() + row * n;
      for (int64_t i = 0; i < n; ++i) {
        to[i] = 0;
        for (int64_t j = 3 * i; j < 3 * i + 3; ++j) to[i] += share[j] * from[which[j]];
      }
    }
  });
  return out;
}

at::Tensor three_interpolate_backward(const at::Tensor &grad_input, const at::Tensor &index_input,
                                      const at::Tensor &weight_input, const at::Tensor &features) {
  const at::Tensor grad = grad_input.contiguous(), index = index_input.contiguous(), weight = weight_input.contiguous();
  at::Tensor grad_features = at::zeros_like(features, at::MemoryFormat::Contiguous);
  const int64_t batch = features.size(0), channels = features.size(1), m = features.size(2), n = index.size(1);
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "three_interpolate_backward", [&] {
    for (int64_t row = 0; row < batch * channels; ++row) {
      const scalar_t *from = grad.const_data_ptr<scalar_t>() + row * n;
      const int64_t *which = index.const_data_ptr<int64_t>() + row / channels * n * 3;
      const scalar_t *share = weight.const_data_ptr<scalar_t>() + row / channels * n * 3;
      scalar_t *to = grad_features.mutable_data_ptr<scalar_t>() + row * m;
      for (int64_t j = 0; j < 3 * n; ++j) to[which[j]] += share[j] * from[j / 3];
    }
  });
  return grad_features;
}

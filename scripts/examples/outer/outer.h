#pragma once

#include <ATen/core/Tensor.h>

inline void check_outer(const at::Tensor &x, const at::Tensor &y) {
  TORCH_CHECK(x.dim() == 2 && y.dim() == 2 && x.size(0) == y.size(0), "outer: x and y must be (b, n) and (b, m), not ",
              x.sizes(), " and ", y.sizes());
  TORCH_CHECK(x.scalar_type() == y.scalar_type(), "outer: x is ", x.scalar_type(), ", but y is ", y.scalar_type());
}

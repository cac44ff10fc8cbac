// Which tensors have gradients.
#pragma once

#include <ATen/core/Tensor.h>

namespace ms_ext {

// Whether its numbers are floating or complex.
inline bool is_differentiable(const at::Tensor &tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

}  // namespace ms_ext

#include <ATen/TensorOperators.h>

#include "ops.h"

namespace project {

at::Tensor scale(const at::Tensor &x, double factor) { return x * factor; }

at::Tensor scale_backward(const at::Tensor &grad, double factor) { return grad * factor; }

}  // namespace project

// Functions in the forms that PyTorch extensions have, for tests/test_kernels.py.
#include "features.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nonzero.h>

namespace lib {

// Everything that is not a tensor, as one number in a tensor of one element for each.
at::Tensor describe(const at::Tensor &x, int64_t n, double r, bool flag, const std::string &mode, const at::Scalar &s,
                    at::IntArrayRef sizes, std::optional<double> maybe, std::optional<at::ScalarType> dtype) {
  at::Tensor out = at::empty_like(x);
  auto *to = out.mutable_data_ptr<double>();
  to[0] = static_cast<double>(n);
  to[1] = r;
  to[2] = flag;
  to[3] = static_cast<double>(mode.size());
  to[4] = s.toDouble();
  to[5] = static_cast<double>(sizes.size() == 0 ? -1 : sizes.back());
  to[6] = maybe.value_or(-1);
  to[7] = dtype ? static_cast<double>(*dtype) : -1;
  return out;
}

}  // namespace lib

// Parameters narrower than ATen's, as extensions for pybind11 often have.
at::Tensor narrow(at::Tensor x, int n, float r) { return x * n + r; }

at::Tensor add_optional(const at::Tensor &x, const std::optional<at::Tensor> &y) { return y ? x + *y : x.clone(); }

at::Tensor join(const std::vector<at::Tensor> &tensors) { return at::cat(tensors, 0); }

std::tuple<at::Tensor, at::Tensor> sum_and_difference(const at::Tensor &a, const at::Tensor &b) {
  return {a + b, a - b};
}

std::tuple<at::Tensor, at::Tensor> sum_and_difference_backward(const at::Tensor &grad_sum,
                                                               const at::Tensor &grad_difference, double scale) {
  return {(grad_sum + grad_difference) * scale, (grad_sum - grad_difference) * scale};
}

// x times the sum of the bytes of a string.
at::Tensor scale_by_mode(const at::Tensor &x, const std::string &mode) {
  int64_t sum = 0;
  for (const char byte : mode) sum += byte;
  return x * sum;
}

at::Tensor scale_by_mode_backward(const at::Tensor &grad, const std::string &mode) { return scale_by_mode(grad, mode); }

std::vector<at::Tensor> split(const at::Tensor &x, int64_t parts) { return x.chunk(parts, 0); }

void add_into(const at::Tensor &x, at::Tensor &out) { out.add_(x); }

void decay(at::Tensor &state, const at::Tensor &x, double rate) { state.mul_(rate).add_(x); }

at::Tensor places(const at::Tensor &x) { return at::nonzero(x); }

at::Tensor sign(const at::Tensor &x) { return x.sgn().to(at::kLong); }

at::Tensor cube(const at::Tensor &x) { return x * x * x; }

at::Tensor cube_backward(const at::Tensor &grad, const at::Tensor &x, int64_t factor) { return grad * x * x * factor; }

at::Tensor constant_backward(const at::Tensor &grad) { return grad.sum().reshape({1}).mul(FEATURES_ONE); }

at::Tensor broadcast(const at::Tensor &x, int64_t n) { return x.expand({n, x.size(0)}).clone(); }

at::Tensor wrong_shape(const at::Tensor &x) { return at::cat({x, x}, 0); }

at::Tensor wrong_dtype(const at::Tensor &x) { return x.to(at::kDouble); }

at::Tensor wrong_backward(const at::Tensor &grad) { return at::cat({grad, grad}, 0); }

at::Tensor throws(const at::Tensor &x) {
  TORCH_CHECK(x.dim() == 1, "throws: x must have one dimension, not ", x.dim());
  return x.clone();
}

// sigmoid for the CPU: a loop forward, a loop backward from the result.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

at::Tensor sigmoid(const at::Tensor &x) {
  TORCH_CHECK(x.is_floating_point(), "sigmoid needs a floating tensor, not ", x.scalar_type());
  at::Tensor y = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sigmoid", [&] {
    const scalar_t *from = x.const_data_ptr<scalar_t>();
    scalar_t *to = y.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = 1 / (1 + std::exp(-from[i]));
  });
  return y;
}

at::Tensor sigmoid_backward(const at::Tensor &grad, const at::Tensor &y) {
  at::Tensor grad_x = at::empty_like(y);
  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "sigmoid_backward", [&] {
    const scalar_t *from = grad.const_data_ptr<scalar_t>();
    const scalar_t *result = y.const_data_ptr<scalar_t>();
    scalar_t *to = grad_x.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < y.numel(); ++i) to[i] = from[i] * (1 - result[i]) * result[i];
  });
  return grad_x;
}

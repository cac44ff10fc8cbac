// gdh, generalised divisive normalisation after Heeger's model of visual cortex: a response is half-squared and divided
// by a weighted sum of all channels' half-squared responses at the same place.
//
//   h = max(x, 0)^2        y[c] = h[c] / (beta[c] + sum over k of gamma[c, k] * h[k])
//
// x and y are (n, c, ...), gamma is (c, c), beta is (c). This file registers the schemas, the meta functions, which
// check the arguments, and the derivative; gdh_cpu.cpp and gdh_cuda.cu have the kernels.
#include "gdh.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

void check_gdh(const at::Tensor &x, const at::Tensor &gamma, const at::Tensor &beta) {
  TORCH_CHECK(x.is_floating_point(), "gdh: x must be floating, not ", x.scalar_type());
  TORCH_CHECK(x.dim() >= 2, "gdh: x must be (n, c, ...), not ", x.sizes());
  const int64_t channels = x.size(1);
  TORCH_CHECK(gamma.dim() == 2 && gamma.size(0) == channels && gamma.size(1) == channels, "gdh: gamma must be (",
              channels, ", ", channels, "), not ", gamma.sizes());
  TORCH_CHECK(beta.dim() == 1 && beta.size(0) == channels, "gdh: beta must be (", channels, "), not ", beta.sizes());
  TORCH_CHECK(gamma.scalar_type() == x.scalar_type() && beta.scalar_type() == x.scalar_type(),
              "gdh: gamma and beta must be ", x.scalar_type(), " as x is, not ", gamma.scalar_type(), " and ",
              beta.scalar_type());
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor gdh_meta(const at::Tensor &x, const at::Tensor &gamma, const at::Tensor &beta) {
  check_gdh(x, gamma, beta);
  return at::empty_like(x, at::MemoryFormat::Contiguous);
}

Tensors gdh_backward_meta(const at::Tensor &grad, const at::Tensor &x, const at::Tensor &gamma,
                          const at::Tensor &beta) {
  check_gdh(x, gamma, beta);
  TORCH_CHECK(grad.sizes() == x.sizes(), "gdh_backward: grad must be ", x.sizes(), ", not ", grad.sizes());
  return {at::empty_like(x, at::MemoryFormat::Contiguous), at::empty_like(gamma), at::empty_like(beta)};
}

class Gdh : public torch::autograd::Function<Gdh> {
 public:
  static at::Tensor forward(AutogradContext *context, const at::Tensor &x, const at::Tensor &gamma,
                            const at::Tensor &beta) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("heeger::gdh", "")
                               .typed<at::Tensor(const at::Tensor &, const at::Tensor &, const at::Tensor &)>();
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, gamma, beta});
    return op.call(x, gamma, beta);
  }

  static variable_list backward(AutogradContext *context, variable_list grads) {
    static const auto op =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("heeger::gdh_backward", "")
            .typed<Tensors(const at::Tensor &, const at::Tensor &, const at::Tensor &, const at::Tensor &)>();
    const auto saved = context->get_saved_variables();
    auto [grad_x, grad_gamma, grad_beta] = op.call(grads[0], saved[0], saved[1], saved[2]);
    return {grad_x, grad_gamma, grad_beta};
  }
};

at::Tensor gdh_autograd(const at::Tensor &x, const at::Tensor &gamma, const at::Tensor &beta) {
  return Gdh::apply(x, gamma, beta);
}

}  // namespace

TORCH_LIBRARY(heeger, m) {
  m.def("gdh(Tensor x, Tensor gamma, Tensor beta) -> Tensor");
  m.def("gdh_backward(Tensor grad, Tensor x, Tensor gamma, Tensor beta) -> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(heeger, Meta, m) {
  m.impl("gdh", &gdh_meta);
  m.impl("gdh_backward", &gdh_backward_meta);
}

TORCH_LIBRARY_IMPL(heeger, Autograd, m) { m.impl("gdh", &gdh_autograd); }

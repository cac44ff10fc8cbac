// gdh's kernels for the CPU. See gdh.cpp for the formula; with d the divisor and u = grad * y / d,
//
//   grad_h[k] = grad[k] / d[k] - sum over c of gamma[c, k] * u[c]        grad_x = 2 * max(x, 0) * grad_h
//   grad_gamma[c, k] = -sum over places of u[c] * h[k]                   grad_beta[c] = -sum over places of u[c]
#include <ATen/Dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <vector>

#include "gdh.h"

namespace {

// Half-squared responses and divisors of all channels at one place.
template <typename T>
struct Place {
  explicit Place(int64_t channels) : h(static_cast<size_t>(channels)), d(static_cast<size_t>(channels)) {}

  void read(const T *x, int64_t stride, const T *gamma, const T *beta) {
    for (size_t c = 0; c < h.size(); ++c) {
      const T response = std::max(x[static_cast<int64_t>(c) * stride], T(0));
      h[c] = response * response;
    }
    for (size_t c = 0; c < h.size(); ++c) {
      d[c] = beta[c];
      for (size_t k = 0; k < h.size(); ++k) d[c] += gamma[c * h.size() + k] * h[k];
    }
  }

  std::vector<T> h, d;
};

at::Tensor gdh(const at::Tensor &input, const at::Tensor &gamma_input, const at::Tensor &beta_input) {
  check_gdh(input, gamma_input, beta_input);
  const at::Tensor x = input.contiguous(), gamma = gamma_input.contiguous(), beta = beta_input.contiguous();
  at::Tensor y = at::empty_like(x);
  const int64_t channels = x.size(1), places = x.numel() == 0 ? 0 : x.numel() / (x.size(0) * channels);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gdh", [&] {
    Place<scalar_t> place(channels);
    for (int64_t n = 0; n < x.size(0); ++n) {
      for (int64_t p = 0; p < places; ++p) {
        const int64_t start = n * channels * places + p;
        place.read(x.const_data_ptr<scalar_t>() + start, places, gamma.const_data_ptr<scalar_t>(),
                   beta.const_data_ptr<scalar_t>());
        scalar_t *to = y.mutable_data_ptr<scalar_t>() + start;
        for (size_t c = 0; c < place.h.size(); ++c) to[static_cast<int64_t>(c) * places] = place.h[c] / place.d[c];
      }
    }
  });
  return y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gdh_backward(const at::Tensor &grad_input, const at::Tensor &input,
                                                            const at::Tensor &gamma_input,
                                                            const at::Tensor &beta_input) {
  check_gdh(input, gamma_input, beta_input);
  TORCH_CHECK(grad_input.sizes() == input.sizes(), "gdh_backward: grad must be ", input.sizes(), ", not ",
              grad_input.sizes());
  const at::Tensor grad = grad_input.contiguous(), x = input.contiguous(), gamma = gamma_input.contiguous(),
                   beta = beta_input.contiguous();
  at::Tensor grad_x = at::empty_like(x), grad_gamma = at::zeros_like(gamma), grad_beta = at::zeros_like(beta);
  const int64_t channels = x.size(1), places = x.numel() == 0 ? 0 : x.numel() / (x.size(0) * channels);
  const auto count = static_cast<size_t>(channels);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gdh_backward", [&] {
    const scalar_t *weight = gamma.const_data_ptr<scalar_t>();
    scalar_t *to_gamma = grad_gamma.mutable_data_ptr<scalar_t>();
    scalar_t *to_beta = grad_beta.mutable_data_ptr<scalar_t>();
    Place<scalar_t> place(channels);
    std::vector<scalar_t> u(count);
    for (int64_t n = 0; n < x.size(0); ++n) {
      for (int64_t p = 0; p < places; ++p) {
        const int64_t start = n * channels * places + p;
        const scalar_t *from = grad.const_data_ptr<scalar_t>() + start;
        const scalar_t *response = x.const_data_ptr<scalar_t>() + start;
        scalar_t *to = grad_x.mutable_data_ptr<scalar_t>() + start;
        place.read(response, places, weight, beta.const_data_ptr<scalar_t>());
        for (size_t c = 0; c < count; ++c) {
          u[c] = from[static_cast<int64_t>(c) * places] * place.h[c] / (place.d[c] * place.d[c]);
          to_beta[c] -= u[c];
          for (size_t k = 0; k < count; ++k) to_gamma[c * count + k] -= u[c] * place.h[k];
        }
        for (size_t k = 0; k < count; ++k) {
          const auto offset = static_cast<int64_t>(k) * places;
          scalar_t grad_h = from[offset] / place.d[k];
          for (size_t c = 0; c < count; ++c) grad_h -= weight[c * count + k] * u[c];
          to[offset] = 2 * std::max(response[offset], scalar_t(0)) * grad_h;
        }
      }
    }
  });
  return {grad_x, grad_gamma, grad_beta};
}

}  // namespace

TORCH_LIBRARY_IMPL(heeger, CPU, m) {
  m.impl("gdh", &gdh);
  m.impl("gdh_backward", &gdh_backward);
}

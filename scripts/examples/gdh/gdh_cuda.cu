// gdh's kernels for CUDA; gdh_cpu.cpp has the formulas.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "gdh.h"

namespace {

constexpr int kThreads = 256;

unsigned blocks(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

// The element of channel 0 at the place that element i belongs to, and i's channel.
struct Where {
  __device__ Where(int64_t i, int64_t channels, int64_t places)
      : channel(i / places % channels), start(i / (channels * places) * channels * places + i % places) {}
  int64_t channel, start;
};

template <typename T>
__device__ T half_squared(T x) {
  return x > 0 ? x * x : T(0);
}

template <typename T>
__device__ T divisor(const T *x, const T *gamma, const T *beta, const Where &where, int64_t channels, int64_t places) {
  T sum = beta[where.channel];
  for (int64_t k = 0; k < channels; ++k) {
    sum += gamma[where.channel * channels + k] * half_squared(x[where.start + k * places]);
  }
  return sum;
}

template <typename T>
__global__ void forward(const T *x, const T *gamma, const T *beta, T *y, int64_t size, int64_t channels,
                        int64_t places) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  y[i] = half_squared(x[i]) / divisor(x, gamma, beta, Where(i, channels, places), channels, places);
}

// t = grad / d and u = grad * h / d^2, for the kernels below.
template <typename T>
__global__ void quotients(const T *grad, const T *x, const T *gamma, const T *beta, T *t, T *u, int64_t size,
                          int64_t channels, int64_t places) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const T d = divisor(x, gamma, beta, Where(i, channels, places), channels, places);
  t[i] = grad[i] / d;
  u[i] = grad[i] * half_squared(x[i]) / (d * d);
}

template <typename T>
__global__ void backward_x(const T *x, const T *gamma, const T *t, const T *u, T *grad_x, int64_t size,
                           int64_t channels, int64_t places) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const Where where(i, channels, places);
  T grad_h = t[i];
  for (int64_t c = 0; c < channels; ++c) grad_h -= gamma[c * channels + where.channel] * u[where.start + c * places];
  grad_x[i] = x[i] > 0 ? 2 * x[i] * grad_h : T(0);
}

// A block for each element of gamma and, at k == channels, of beta: it sums over all places.
template <typename T>
__global__ void backward_parameters(const T *x, const T *u, T *grad_gamma, T *grad_beta, int64_t samples,
                                    int64_t channels, int64_t places) {
  __shared__ T sums[kThreads];
  const int64_t c = blockIdx.x, k = blockIdx.y;
  T sum = 0;
  for (int64_t i = threadIdx.x; i < samples * places; i += kThreads) {
    const int64_t start = i / places * channels * places + i % places;
    sum += u[start + c * places] * (k < channels ? half_squared(x[start + k * places]) : T(1));
  }
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x != 0) return;
  if (k < channels) {
    grad_gamma[c * channels + k] = -sums[0];
  } else {
    grad_beta[c] = -sums[0];
  }
}

at::Tensor gdh(const at::Tensor &input, const at::Tensor &gamma_input, const at::Tensor &beta_input) {
  check_gdh(input, gamma_input, beta_input);
  const at::Tensor x = input.contiguous(), gamma = gamma_input.contiguous(), beta = beta_input.contiguous();
  at::Tensor y = at::empty_like(x);
  const int64_t size = x.numel(), channels = x.size(1);
  if (size == 0) return y;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gdh", [&] {
    forward<<<blocks(size), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<scalar_t>(), gamma.const_data_ptr<scalar_t>(), beta.const_data_ptr<scalar_t>(),
        y.mutable_data_ptr<scalar_t>(), size, channels, size / (x.size(0) * channels));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
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
  at::Tensor grad_x = at::empty_like(x), grad_gamma = at::empty_like(gamma), grad_beta = at::empty_like(beta);
  const int64_t size = x.numel(), channels = x.size(1);
  if (size == 0) return {grad_x, grad_gamma.zero_(), grad_beta.zero_()};
  const at::Tensor t = at::empty_like(x), u = at::empty_like(x);
  const int64_t places = size / (x.size(0) * channels);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gdh_backward", [&] {
    quotients<<<blocks(size), kThreads, 0, stream>>>(grad.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(),
                                                     gamma.const_data_ptr<scalar_t>(), beta.const_data_ptr<scalar_t>(),
                                                     t.mutable_data_ptr<scalar_t>(), u.mutable_data_ptr<scalar_t>(),
                                                     size, channels, places);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    backward_x<<<blocks(size), kThreads, 0, stream>>>(x.const_data_ptr<scalar_t>(), gamma.const_data_ptr<scalar_t>(),
                                                      t.const_data_ptr<scalar_t>(), u.const_data_ptr<scalar_t>(),
                                                      grad_x.mutable_data_ptr<scalar_t>(), size, channels, places);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    const dim3 elements(static_cast<unsigned>(channels), static_cast<unsigned>(channels + 1));
    backward_parameters<<<elements, kThreads, 0, stream>>>(
        x.const_data_ptr<scalar_t>(), u.const_data_ptr<scalar_t>(), grad_gamma.mutable_data_ptr<scalar_t>(),
        grad_beta.mutable_data_ptr<scalar_t>(), x.size(0), channels, places);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return {grad_x, grad_gamma, grad_beta};
}

}  // namespace

TORCH_LIBRARY_IMPL(heeger, CUDA, m) {
  m.impl("gdh", &gdh);
  m.impl("gdh_backward", &gdh_backward);
}

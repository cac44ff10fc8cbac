// The batched outer product for CUDA: a thread for each element of the result.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "outer.h"

namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void multiply(const T *x, const T *y, T *out, int64_t size, int64_t n, int64_t m) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < size) out[i] = x[i / m] * y[i / (n * m) * m + i % m];
}

}  // namespace

at::Tensor outer(const at::Tensor &x_input, const at::Tensor &y_input) {
  check_outer(x_input, y_input);
  const at::Tensor x = x_input.contiguous(), y = y_input.contiguous();
  const int64_t batch = x.size(0), n = x.size(1), m = y.size(1), size = batch * n * m;
  at::Tensor out = at::empty({batch, n, m}, x.options());
  if (size == 0) return out;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "outer", [&] {
    multiply<<<static_cast<unsigned>((size + kThreads - 1) / kThreads), kThreads, 0,
               c10::cuda::getCurrentCUDAStream()>>>(x.const_data_ptr<scalar_t>(), y.const_data_ptr<scalar_t>(),
                                                    out.mutable_data_ptr<scalar_t>(), size, n, m);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

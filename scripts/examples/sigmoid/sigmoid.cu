// sigmoid for CUDA: one thread for each element. c10::cuda::getCurrentCUDAStream() is MindSpore's stream here.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace {

constexpr int kThreads = 256;

unsigned blocks(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

template <typename T>
__global__ void forward(const T *x, T *y, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 1 / (1 + exp(-x[i]));
}

template <typename T>
__global__ void backward(const T *grad, const T *y, T *grad_x, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) grad_x[i] = grad[i] * (1 - y[i]) * y[i];
}

}  // namespace

at::Tensor sigmoid(const at::Tensor &x) {
  TORCH_CHECK(x.is_floating_point(), "sigmoid needs a floating tensor, not ", x.scalar_type());
  at::Tensor y = at::empty_like(x);
  if (x.numel() == 0) return y;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sigmoid", [&] {
    forward<<<blocks(x.numel()), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), x.numel());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

at::Tensor sigmoid_backward(const at::Tensor &grad, const at::Tensor &y) {
  at::Tensor grad_x = at::empty_like(y);
  if (y.numel() == 0) return grad_x;
  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "sigmoid_backward", [&] {
    backward<<<blocks(y.numel()), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        grad.const_data_ptr<scalar_t>(), y.const_data_ptr<scalar_t>(), grad_x.mutable_data_ptr<scalar_t>(), y.numel());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grad_x;
}

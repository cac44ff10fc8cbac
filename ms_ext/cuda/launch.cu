// Launches on MindSpore's CUDA stream, as cpu.cpp on a CPU. Host code alone: ATen brings the kernels.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <optional>

#include "cuda/allocator.h"
#include "mindspore/launch_error.h"
#include "shim.h"

namespace ms_ext {
namespace {

// The device of a stream, which is that of the data in it. A thread launches on the same stream again and again.
c10::Device device_of(cudaStream_t stream, int nparam, void **params) {
  struct Known {
    cudaStream_t stream;
    c10::Device device;
  };
  thread_local std::optional<Known> known;
  if (known && known->stream == stream) return known->device;
  for (int i = 0; i < nparam; ++i) {
    if (params[i] == nullptr) continue;  // empty
    const c10::Device device = at::detail::getCUDAHooks().getDeviceFromPtr(params[i]);
    if (stream != nullptr) known = Known{stream, device};  // each device has a null stream
    return device;
  }
  return {c10::kCUDA, c10::cuda::current_device()};
}

}  // namespace

int launch_cuda(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                void *extra) {
  try {
    accept_offers();
    const auto cuda_stream = static_cast<cudaStream_t>(stream);
    const c10::Device device = device_of(cuda_stream, nparam, params);
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(cuda_stream, device.index()));
    launch(device, nparam, params, ndims, shapes, dtypes, extra);
  } catch (const std::exception &error) {
    ms_ext_explain(error.what());
    throw;
  }
  return 0;
}

}  // namespace ms_ext

extern "C" {

// Fills memory with zeros, in the order of the stream (mindspore/python/filled.h).
void ms_ext_zero(void *data, size_t bytes, void *stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  const c10::cuda::CUDAGuard guard(ms_ext::device_of(cuda_stream, 1, &data));
  C10_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, cuda_stream));
}

// Fills memory for so many numbers of a dtype with ones, in the order of the stream (mindspore/python/filled.h).
void ms_ext_one(void *data, size_t count, const char *dtype, void *stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  const c10::Device device = ms_ext::device_of(cuda_stream, 1, &data);
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(cuda_stream, device.index()));
  const at::InferenceMode no_gradient;
  const auto options = at::device(device).dtype(ms_ext::scalar_type(dtype));
  at::from_blob(data, {static_cast<int64_t>(count)}, options).fill_(1);
}

// The device of some memory: -1 if it is the host's.
int ms_ext_device_of(void *data) {
  try {
    return at::detail::getCUDAHooks().getDeviceFromPtr(data).index();
  } catch (const c10::Error &) {
    return -1;
  }
}

// PyTorch's own stream has done what it was asked for on this thread, as what a user writes to weights between two
// steps: MindSpore's stream does not wait for it.
void ms_ext_wait_for_torch(int gpu) {
  const c10::cuda::CUDAStream own = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(gpu));
  if (!own.query()) own.synchronize();
}

// PyTorch works on that stream of the GPU on this thread, until it leaves (mindspore/python/module.cpp).
void *ms_ext_enter_stream(void *stream, int gpu) {
  const auto device = static_cast<c10::DeviceIndex>(gpu);
  return new c10::cuda::CUDAStreamGuard(c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream), device));
}

void ms_ext_leave_stream(void *entered) { delete static_cast<c10::cuda::CUDAStreamGuard *>(entered); }

}  // extern "C"

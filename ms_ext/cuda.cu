// Launches on MindSpore's CUDA stream. Host code alone: ATen brings the kernels.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <optional>

#include "donation.h"
#include "launch_error.h"
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

// Makes PyTorch's CUDA allocator take the memory that is offered to it (donation.h).
//
// c10::Allocator has one function that allocates. The CUDA allocator has some forty more, which differ between releases
// of PyTorch, so none can be wrapped around it; instead the object gets a copy of its table of virtual functions in
// which allocate() is this one.
class Offers {
 public:
  static void accept() {
    static const Offers instance(c10::cuda::CUDACachingAllocator::get());
    static_cast<void>(instance);
  }

 private:
  using Allocate = c10::DataPtr (*)(c10::Allocator *self, size_t size);

  explicit Offers(c10::Allocator *allocator) {
    void **&functions = *reinterpret_cast<void ***>(allocator);
    std::copy_n(functions - kBefore, table_.size(), table_.begin());  // what follows the table is read, and never used
    void *&slot = table_[kBefore + slot_of_allocate()];
    original_ = reinterpret_cast<Allocate>(slot);
    slot = reinterpret_cast<void *>(&allocate);
    functions = table_.data() + kBefore;
  }

  static c10::DataPtr allocate(c10::Allocator *self, size_t size) {
    void *data = take_offer(size, c10::kCUDA);
    if (data != nullptr) return {data, data, [](void *) {}, {c10::kCUDA, c10::cuda::current_device()}};
    c10::DataPtr own = original_(self, size);
    note_allocation(size, c10::kCUDA, own.get());
    return own;
  }

  // A pointer to a virtual member function holds one more than the function's offset in the table (Itanium C++ ABI).
  static size_t slot_of_allocate() {
    const auto member = &c10::Allocator::allocate;
    size_t offset = 0;
    std::memcpy(&offset, &member, sizeof(offset));
    return (offset - 1) / sizeof(void *);
  }

  static constexpr size_t kBefore = 2;  // the type's information stands in front of the functions
  static inline std::array<void *, 128> table_;
  static inline Allocate original_ = nullptr;
};

}  // namespace

int launch_cuda(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                void *extra) {
  try {
    Offers::accept();
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

// Fills memory with zeros, in the order of the stream (pynative.cpp).
void ms_ext_zero(void *data, size_t bytes, void *stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  const c10::cuda::CUDAGuard guard(ms_ext::device_of(cuda_stream, 1, &data));
  C10_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, cuda_stream));
}

// PyTorch works on that stream of the GPU on this thread, until it leaves (module.cpp).
void *ms_ext_enter_stream(void *stream, int gpu) {
  const auto device = static_cast<c10::DeviceIndex>(gpu);
  return new c10::cuda::CUDAStreamGuard(
      c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream), device));
}

void ms_ext_leave_stream(void *entered) { delete static_cast<c10::cuda::CUDAStreamGuard *>(entered); }

// The device of some memory: -1 if it is the host's.
int ms_ext_device_of(void *data) {
  try {
    return at::detail::getCUDAHooks().getDeviceFromPtr(data).index();
  } catch (const c10::Error &) {
    return -1;
  }
}

}  // extern "C"

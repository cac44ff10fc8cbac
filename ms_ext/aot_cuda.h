// The memory of AOT functions in CUDA; see aot.h.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "aot.h"

namespace ms_ext {

inline void check_cuda(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
}

inline const Memory kCuda{
    false,
    [](void *to, size_t bytes, void *stream) {
      check_cuda(cudaMemsetAsync(to, 0, bytes, static_cast<cudaStream_t>(stream)));
    },
    [](void *to, const void *from, size_t bytes, void *stream) {
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)));
    }};

}  // namespace ms_ext

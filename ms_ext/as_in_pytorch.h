// What a thread needs for PyTorch's kernels on the CPU to give PyTorch's bits.
#pragma once

#include <ATen/Parallel.h>
#include <pmmintrin.h>
#include <xmmintrin.h>

namespace ms_ext {

// MindSpore's graph threads flush denormal numbers to zero; PyTorch's kernels run with them. `torch.set_num_threads`
// holds on its caller's thread. Another thread takes the number over at its first parallel loop of ATen's; oneDNN's
// kernels have no such loop, and would run with as many threads as there are cores.
class AsInPyTorch {
 public:
  AsInPyTorch() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ & ~(_MM_FLUSH_ZERO_MASK | _MM_DENORMALS_ZERO_MASK));
    at::internal::lazy_init_num_threads();
  }
  ~AsInPyTorch() { _mm_setcsr(before_); }

 private:
  unsigned before_;
};

}  // namespace ms_ext

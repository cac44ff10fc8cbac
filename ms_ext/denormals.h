// Denormal numbers on the CPU.
#pragma once

#include <pmmintrin.h>
#include <xmmintrin.h>

namespace ms_ext {

// MindSpore's graph threads flush denormal numbers to zero; PyTorch's kernels run with them.
class WithDenormals {
 public:
  WithDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ & ~(_MM_FLUSH_ZERO_MASK | _MM_DENORMALS_ZERO_MASK)); }
  ~WithDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
};

}  // namespace ms_ext

// Element-wise operators on rows of float32, with the bits of PyTorch's kernels on a CPU.
#pragma once

#include <cstdint>

#include "programs/python/element_wise.h"

namespace ms_ext {

// result[i] = of(a[i], b[i], c[i], number) for `count` numbers. Those that it does not take may be null.
using Rows = void (*)(float *result, const float *a, const float *b, const float *c, float number, int64_t count);

// Null where this processor, or PyTorch's kernels on it, have something of their own: all are compared with them once.
Rows rows_of(Operation operation);

}  // namespace ms_ext

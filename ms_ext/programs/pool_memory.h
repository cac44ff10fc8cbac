// MindSpore's memory for a program on the CPU, across the two string ABIs: C types only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ms_ext {

// The C library keeps smaller pieces itself, and faster.
constexpr size_t kSmallestInPool = 65536;

// The pool, and the tensors of a launch. Whoever has memory of the pool frees it.
struct PoolMemory {
  void *(*allocate)(size_t size);  // null if there is no more
  void (*release)(void *data);

  void *launch;                                                  // null if there is none
  void *(*take_input)(void *launch, size_t input);               // its memory, if nobody else needs it; else null
  void (*give_output)(void *launch, size_t output, void *data);  // memory for an output that has none
};

// As a shim's functions. An output without memory is a null pointer.
using InitProgram = int(int *ndims, int64_t **shapes, const char **dtypes, void *extra);
using LaunchProgram = void(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *extra,
                           const PoolMemory *memory);

}  // namespace ms_ext

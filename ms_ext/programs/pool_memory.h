// What a launch of a program has of MindSpore's memory, across the two string ABIs: C types only.
#pragma once

#include <cstddef>

namespace ms_ext {

// Whoever has memory of the pool frees it.
struct PoolMemory {
  void *(*allocate)(size_t size);  // null if there is no more
  void (*release)(void *data);

  void *launch;
  void *(*take_input)(void *launch, size_t input);               // its memory, if nobody else needs it; else null
  void (*give_output)(void *launch, size_t output, void *data);  // memory for an output that has none
};

// Makes one launch on the CPU. An output without memory is a null pointer.
using LaunchProgram = void (*)(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *extra,
                               const PoolMemory *memory);

}  // namespace ms_ext

// A tensor's memory, as the two frameworks hand it to each other across their string ABIs: C types only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ms_ext {

// The memory of a tensor of either framework. Whoever is given one owns it, and calls `release` when it is done.
struct TensorMemory {
  void *data = nullptr;
  const int64_t *shape = nullptr;    // lives as long as the owner
  const int64_t *strides = nullptr;  // null if contiguous
  size_t ndim = 0;
  const char *dtype = nullptr;  // null if there is no tensor
  int gpu = -1;                 // its index; -1 for the host
  void *owner = nullptr;
  void (*release)(void *owner) = nullptr;
};

}  // namespace ms_ext

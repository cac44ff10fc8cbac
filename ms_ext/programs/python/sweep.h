// Element-wise calls on lists of tensors as one pass through memory, which reads and writes each element once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "programs/python/element_wise.h"

namespace ms_ext {

using TensorLists = std::vector<std::vector<at::Tensor>>;

// The first lists are those that a run is given, the others live in the sweep only.
struct SweptCall {
  Operation operation;
  bool has_numbers;  // one for each item, in place of one for all
  size_t result;
  std::vector<size_t> tensors;
};

class Sweep {
 public:
  virtual ~Sweep() = default;

  // Makes the calls for each item of the lists. All are of float32, lie in memory alike, and none that is written
  // overlaps another.
  // Args: the lists; for each call its number or numbers.
  virtual void run(const TensorLists &lists, const std::vector<std::vector<float>> &numbers) = 0;
};

// Makes all calls on a block of the elements, while that is in the processor's cache. rows.h has the operations.
std::unique_ptr<Sweep> sweep_on_cpu(const std::vector<SweptCall> &calls, size_t lists);

}  // namespace ms_ext

// On a GPU a kernel makes them, on the current stream. The library that knows CUDA has it (../../cuda/list_sweep.cu).
extern "C" {

// Whether it has the bits of PyTorch's kernels.
bool ms_ext_can_sweep_lists(ms_ext::Operation operation, bool has_numbers, int gpu);

// A sweep of such operations.
ms_ext::Sweep *ms_ext_list_sweep(const std::vector<ms_ext::SweptCall> &calls, size_t lists, int gpu);

}  // extern "C"

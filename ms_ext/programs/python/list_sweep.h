// Element-wise calls on lists of tensors on a GPU as one kernel, which reads and writes each element once. A library
// that knows CUDA has it (../../cuda/list_sweep.cu).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "programs/python/element_wise.h"

namespace ms_ext {

using TensorLists = std::vector<std::vector<at::Tensor>>;

// A call of a sweep. The first tensors are those that a run is given, the others live in the sweep only.
struct ListCall {
  Operation operation;
  bool has_numbers;  // one for each item, in place of one for all
  size_t result;
  std::vector<size_t> tensors;
  size_t number;  // of those that a run is given
};

class ListSweep {
 public:
  virtual ~ListSweep() = default;

  // Makes the calls for each item of the lists, on the current stream. The items of all lists lie in memory alike, and
  // none that is written overlaps another.
  // Args: the lists; for each call its number or numbers.
  virtual void run(const TensorLists &lists, const std::vector<std::vector<float>> &numbers) = 0;
};

}  // namespace ms_ext

extern "C" {

// Whether a sweep on this GPU has the bits of PyTorch's kernels.
bool ms_ext_can_sweep_lists(ms_ext::Operation operation, bool has_numbers, int gpu);

// A sweep on this GPU of such operations, whose runs are given so many lists.
ms_ext::ListSweep *ms_ext_list_sweep(const std::vector<ms_ext::ListCall> &calls, size_t lists, int gpu);

}  // extern "C"

// PyTorch's tensors on memory of MindSpore's, and the reverse.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "programs/memory.h"

namespace ms_ext {

// A tensor on that memory, which it releases.
at::Tensor tensor_on(const TensorMemory &memory);

// The same for each; undefined where there is no memory.
std::vector<at::Tensor> tensors_on(const TensorMemory *memories, size_t count);

// The memory of a contiguous tensor, which it keeps.
TensorMemory memory_of(const at::Tensor &tensor);

// The tensor, contiguous, with nothing left to be done when its elements are read.
at::Tensor plain(const at::Tensor &tensor);

// The gradients of the wanted inputs, by PyTorch's engine, from those of the outputs, of which some may be undefined.
// Undefined where the outputs do not depend on the input. Called without the GIL. PyTorch frees what it saved, as it
// goes, unless the gradients shall have gradients (`create_graph`).
std::vector<at::Tensor> differentiate(const std::vector<at::Tensor> &inputs, const bool *wanted,
                                      const std::vector<at::Tensor> &outputs, std::vector<at::Tensor> gradients,
                                      bool create_graph = false);

// Each tensor in memory that is nobody else's; nothing for those that are undefined.
void give(std::vector<at::Tensor> gradients, TensorMemory *results);

}  // namespace ms_ext

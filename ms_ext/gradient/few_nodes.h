// The gradients of what autograd recorded. A single call is a few nodes: they are applied without the engine, which
// takes as long as five nodes of small tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ms_ext {

// As `differentiate` in programs/torch_memory.h.
std::vector<at::Tensor> differentiate_recorded(const std::vector<at::Tensor> &inputs, const bool *wanted,
                                               const std::vector<at::Tensor> &results,
                                               std::vector<at::Tensor> gradients);

}  // namespace ms_ext

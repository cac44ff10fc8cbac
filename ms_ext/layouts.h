// Strides of results. PyTorch's kernels lay some out otherwise than row by row (matrices of linear algebra are
// column-major) and its backward saves them so; MindSpore's copy is contiguous. bridge/infer/strides.py reports the strides
// of each such call while it infers shapes, and the backward shim gives them back: its matrix products then round
// alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ms_ext {

using Strides = std::vector<int64_t>;

// The strides of each result of a call (the overload's name and text) for inputs of these shapes; empty if all results
// are contiguous.
std::vector<Strides> find_layout(const std::string &call, at::ArrayRef<at::Tensor> inputs);

// The tensor itself if it has these strides, or else a copy that has.
at::Tensor with_strides(const at::Tensor &tensor, const Strides &strides);

}  // namespace ms_ext

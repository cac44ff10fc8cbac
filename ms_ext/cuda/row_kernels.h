// CUDA kernels for whole rows of float32 that give PyTorch's bits in less time than PyTorch's kernels. Each function
// returns false, and has done nothing, where its kernel is not made for the tensors: PyTorch's runs then.
#pragma once

#include <ATen/core/Tensor.h>

namespace ms_ext::row_kernels {

// softmax along the last dimension, from 2,049 to 9,216 numbers that are a multiple of four.
bool softmax(const at::Tensor &self, int64_t dim, const at::Tensor &result);

// sort along the last dimension, from 2,049 to 4,096 numbers.
bool sort(const at::Tensor &self, int64_t dim, bool descending, const at::Tensor &values, const at::Tensor &indices);

// Whether `dim` is the last dimension of a contiguous float32 tensor, there are rows, and they are no shorter and no
// longer than this.
inline bool are_rows_of_floats(const at::Tensor &tensor, int64_t dim, int64_t shortest, int64_t longest) {
  if (tensor.scalar_type() != at::kFloat || tensor.dim() == 0 || (dim != -1 && dim != tensor.dim() - 1)) return false;
  const int64_t length = tensor.size(-1);
  if (length < shortest || length > longest || !tensor.is_contiguous()) return false;
  const int64_t rows = tensor.numel() / length;
  return rows > 0 && rows < (int64_t{1} << 31);
}

}  // namespace ms_ext::row_kernels

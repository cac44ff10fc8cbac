// Operators whose CUDA shim has a shorter way than PyTorch's function: a kernel of row_kernels.h where one is made for
// the tensors, or PyTorch's kernel (a dispatch stub) right on the outputs, because the function does more than the
// kernel needs. The functions' checks were made where the shapes were inferred. Named like the shims; the arguments are
// those of the overload. aten_ops/shims.py lists them.
#pragma once

#include "shim.h"

namespace ms_ext::cuda_kernels {

// The function allocates its three results and views two of them, which takes twice as long as the launch.
void native_layer_norm(Call &call, const at::Tensor &input, at::IntArrayRef normalized_shape,
                       const std::optional<at::Tensor> &weight, const std::optional<at::Tensor> &bias, double eps);

void softmax_int(Call &call, const at::Tensor &self, int64_t dim, std::optional<at::ScalarType> dtype);
void _softmax(Call &call, const at::Tensor &self, int64_t dim, bool half_to_float);

// The function copies `self` to the values first, as the CPU's kernel wants it. The CUDA kernel does not read them.
void sort(Call &call, const at::Tensor &self, int64_t dim, bool descending);
void sort_stable(Call &call, const at::Tensor &self, std::optional<bool> stable, int64_t dim, bool descending);

}  // namespace ms_ext::cuda_kernels

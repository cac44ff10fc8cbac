// How PyTorch's own files are compiled for x86-64: what calls a dispatch stub takes a pointer for each of these.
#define HAVE_AVX2_CPU_DEFINITION
#define HAVE_AVX512_CPU_DEFINITION

#include <ATen/WrapDimUtils.h>
#include <ATen/native/Sorting.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/softmax.h>
#include <c10/util/accumulate.h>

#include "cuda/cuda_kernels.h"
#include "cuda/row_kernels.h"

namespace ms_ext::cuda_kernels {

void native_layer_norm(Call &call, const at::Tensor &input, at::IntArrayRef normalized_shape,
                       const std::optional<at::Tensor> &weight, const std::optional<at::Tensor> &bias, double eps) {
  const int64_t rows = call.out(1).numel();
  if (rows == 0) return;
  at::native::LayerNormKernel(c10::kCUDA, input, weight.value_or(at::Tensor()), bias.value_or(at::Tensor()), rows,
                              c10::multiply_integers(normalized_shape), eps, &call.out(0), &call.out(1), &call.out(2));
}

void softmax_int(Call &call, const at::Tensor &self, int64_t dim, std::optional<at::ScalarType> dtype) {
  if (row_kernels::softmax(self, dim, call.out(0))) return;
  at::softmax_out(call.out(0), self, dim, dtype);
}

void _softmax(Call &call, const at::Tensor &self, int64_t dim, bool half_to_float) {
  if (row_kernels::softmax(self, dim, call.out(0))) return;
  at::_softmax_out(call.out(0), self, dim, half_to_float);
}

void sort(Call &call, const at::Tensor &self, int64_t dim, bool descending) {
  sort_stable(call, self, std::nullopt, dim, descending);
}

void sort_stable(Call &call, const at::Tensor &self, std::optional<bool> stable, int64_t dim, bool descending) {
  if (self.dim() == 0) {
    call.out(0).copy_(self);
    call.out(1).zero_();
    return;
  }
  if (row_kernels::sort(self, dim, descending, call.out(0), call.out(1))) return;
  at::native::sort_stub(c10::kCUDA, self, call.out(0), call.out(1), at::maybe_wrap_dim(dim, self.dim()), descending,
                        stable.value_or(false));
}

}  // namespace ms_ext::cuda_kernels

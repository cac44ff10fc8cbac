// Host code for both devices in one file, in each form that a kernel can have: a function, an operator that is
// registered, and a kernel for MindSpore's Custom operator. What is for a GPU alone stands in device.cu.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "both.h"

namespace both {

at::Tensor scaled(const at::Tensor &x, double factor) {
  TORCH_CHECK(x.scalar_type() == at::kFloat, "scaled: x has to be float32");
  if (!x.is_cuda()) return x * factor;
  const at::Tensor dense = x.contiguous();
  at::Tensor out = at::empty_like(dense);
  scale_on_gpu(dense.const_data_ptr<float>(), out.mutable_data_ptr<float>(), dense.numel(), factor, current_stream());
  return out;
}

}  // namespace both

TORCH_LIBRARY(both, library) {
  library.def("tripled(Tensor x) -> Tensor", [](const at::Tensor &x) { return both::scaled(x, 3); });
}

extern "C" int Halve(int nparam, void **params, int *ndims, int64_t **shapes, const char **, void *stream, void *) {
  if (nparam != 2) return 1;
  int64_t count = 1;
  for (int i = 0; i < ndims[0]; ++i) count *= shapes[0][i];
  const auto *from = static_cast<const float *>(params[0]);
  auto *to = static_cast<float *>(params[1]);
  if (stream != nullptr) {
    both::scale_on_gpu(from, to, count, 0.5, stream);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] / 2;
  }
  return 0;
}

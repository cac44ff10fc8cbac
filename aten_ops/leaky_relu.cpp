// The smallest whole operator, written by hand: what the generator writes for every ATen overload does the same.
// tests/test_hand_written_shim.py compiles it and calls it from MindSpore.
#include <ATen/ops/leaky_relu.h>

#include "ms_ext.h"

extern "C" int LeakyRelu(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                         void *extra) {
  auto tensors = get_torch_tensors(nparam, params, ndims, shapes, dtypes, c10::kCPU);
  torch::leaky_relu_out(/*out=*/tensors[1], /*self=*/tensors[0], /*negative_slope=*/0.01);
  return 0;
}

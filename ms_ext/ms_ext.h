// Tensors: MindSpore's AOT parameters as at::Tensor views. A hand-written shim needs this header alone:
//
//   extern "C" int MyRelu(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
//                         void *extra) {
//     auto tensors = get_torch_tensors(nparam, params, ndims, shapes, dtypes, c10::kCPU);
//     at::relu_out(tensors[1], tensors[0]);
//     return 0;
//   }
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace torch {
using namespace at;  // the tutorials' spelling, torch::leaky_relu_out, without PyTorch's heavy extension header
}  // namespace torch

namespace ms_ext {

// The ScalarType of a dtype's name, MindSpore's or PyTorch's ("float32", "bfloat16", "complex64", ...).
// Throws std::invalid_argument that names a dtype which ATen does not have.
c10::ScalarType scalar_type(const char *name);

// A view of `data`: nothing is copied and nothing is owned. `data` may be null if the tensor is empty.
at::Tensor view(void *data, int ndim, const int64_t *shape, const char *dtype, c10::Device device);

}  // namespace ms_ext

// Views of the first `nparam` parameters, which are the inputs followed by the outputs. Workspaces, which MindSpore
// appends and counts, have neither shape nor dtype: a kernel that asked for W of them passes nparam - W.
std::vector<at::Tensor> get_torch_tensors(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
                                          c10::Device device);

// Copies a result to where MindSpore wants it: `output` is one of `params`, of the result's size and on its device.
// With an out= variant, or `tensors[1].copy_(result)`, the dtype may differ.
void output_memcpy(void *output, const at::Tensor &result);

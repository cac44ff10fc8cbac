#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>

#include "ops.h"

namespace project {

// A function of the GPU's sources, where this file is compiled for a GPU too.
at::Tensor by_name_cuda(const at::Tensor &x, double factor);

at::Tensor by_name(const at::Tensor &x, const std::string &name) {
  const double factor = factor_of(canonical(name));
  TORCH_CHECK(factor != 0, "by_name: no factor has the name '", name, "'");
  return x.is_cuda() || name == "GPU" ? by_name_cuda(x, factor) : x * factor;
}

// What a module for pybind11 would bind: nobody else sees it.
static at::Tensor halved(const at::Tensor &x) { return x * kHalf<double>; }

const auto used = &halved;

}  // namespace project

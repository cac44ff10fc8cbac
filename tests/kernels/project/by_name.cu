#include <ATen/TensorOperators.h>

namespace project {

at::Tensor by_name_cuda(const at::Tensor &x, double factor) { return x * factor; }

}  // namespace project

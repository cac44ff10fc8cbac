// Operators registered in the ways of older extensions, without a dispatch key, for tests/test_foreign_operators.py.
#include <ATen/TensorOperators.h>
#include <ATen/core/op_registration/op_registration.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

namespace {

at::Tensor twice_of(const at::Tensor &x) {
  const at::Tensor dense = x.contiguous();
  at::Tensor out = at::empty_like(dense);
  const float *from = dense.data_ptr<float>();
  float *to = out.data_ptr<float>();
  for (int64_t i = 0; i < dense.numel(); ++i) to[i] = 2 * from[i];
  return out;
}

// With a gradient that nobody would guess: 5 times the cotangent.
class Twice : public torch::autograd::Function<Twice> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext *, const at::Tensor &x) { return twice_of(x); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *,
                                                 torch::autograd::variable_list grads) {
    return {grads[0] * 5};
  }
};

at::Tensor twice(const at::Tensor &x) { return Twice::apply(x); }

at::Tensor square_sum(const at::Tensor &x, double factor) { return (x * x).sum() * factor; }

// Only what is positive: the shape follows from the data.
at::Tensor positive(const at::Tensor &x) { return x.masked_select(x > 0); }

void scale_(at::Tensor &x, double factor) { x.mul_(factor); }

at::Tensor &shift_(at::Tensor &x, const at::Tensor &by) { return x.add_(by); }

// Writes and returns: adds to the total, and gives the largest element.
at::Tensor accumulate(at::Tensor &total, const at::Tensor &x) {
  total.add_(x);
  return x.max();
}

at::Tensor count(const c10::Dict<std::string, int64_t> &counts, const at::Tensor &x) {
  return x * static_cast<int64_t>(counts.size());
}

}  // namespace

at::Tensor plain(const at::Tensor &x, double factor) { return x * factor; }

at::Tensor plain_backward(const at::Tensor &grad, double factor) { return grad * factor; }

TORCH_LIBRARY(bridge_foreign, m) {
  m.def("twice", &twice);
  m.def("square_sum", &square_sum);
  m.def("positive", &positive);
  m.def("scale_(Tensor(a!) x, float factor) -> ()", &scale_);
  m.def("shift_(Tensor(a!) x, Tensor by) -> Tensor(a!)", &shift_);
  m.def("accumulate(Tensor(a!) total, Tensor x) -> Tensor", &accumulate);
  m.def("count", &count);
}

static auto registry = torch::RegisterOperators().op("bridge_foreign_old::twice", &twice_of);

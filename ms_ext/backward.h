// What a generated backward shim is made of. PyTorch's own backward node of the overload is filled from the call's
// arguments and results, and applied to the gradients: its formula runs without the forward call and without the
// engine.
//
//   // leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor
//   struct leaky_relu_derivative_shim {
//     Saved saved;
//     Tensor self;
//     at::Scalar negative_slope;
//     MS_EXT_ONCE explicit leaky_relu_derivative_shim(Arguments &args) { args >> saved >> self >> negative_slope; }
//     void operator()(Call &c) const {
//       const auto &self = c(this->self);
//       Backward<generated::LeakyReluBackward0> node(c, saved);
//       node.save(node->self_, self);
//       node.save(node->negative_slope, negative_slope);
//       node.wants(self);
//       node.apply();
//     }
//   };
//   MS_EXT_CPU_SHIM_TUPLE(leaky_relu_derivative)
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/core/List.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "shim.h"

namespace ms_ext {

namespace generated = torch::autograd::generated;

// What precedes the overload's own text: how many results it gave, whether they are among the kernel's inputs, for each
// result whether autograd tracks it, for each input whether its gradient is asked for (a 0 or 1 for each, or nothing if
// all are), and the overload's name.
struct Saved {
  int64_t results = 0;
  bool passed = false;
  std::string differentiable;
  std::string asked;
  std::string call;  // the name and the overload's own text

  // The inputs of the kernel are the overload's tensors, its results if they are passed, and their gradients.
  // Results are in the strides that PyTorch's kernel gives them (gradient/layouts.h).
  at::Tensor result(const Call &c, size_t i) const;
  std::vector<at::Tensor> all_results(const Call &c) const;
  torch::autograd::variable_list gradients(const Call &c) const;
};

Arguments &operator>>(Arguments &args, Saved &saved);

// What owns a new node. PyTorch 2.13 counts references in the node, earlier ones beside it.
template <typename Node>
auto own(Node *node) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>) {
    return c10::intrusive_ptr<Node>::unsafe_steal_from_new(node);
  } else {
    return std::shared_ptr<Node>(node);
  }
}

// Where the edges of a node lead: it only has to be there for the node to compute the gradient.
const torch::autograd::Edge &sink();

// The part of Backward that does not depend on the node's class, in gradient/backward.cpp: there are hundreds to
// compile.
class BackwardBase {
 public:
  void save(torch::autograd::SavedVariable &field, const at::Tensor &tensor);
  void save(torch::autograd::SavedVariable &field, const std::optional<at::Tensor> &tensor);
  void save(std::vector<torch::autograd::SavedVariable> &field, const std::vector<at::Tensor> &tensors);
  void save(std::vector<torch::autograd::SavedVariable> &field, const c10::List<std::optional<at::Tensor>> &tensors);
  void save(std::vector<c10::SymInt> &field, const std::vector<int64_t> &values);
  void save(std::vector<c10::SymInt> &field, c10::SymIntArrayRef values) { field = values.vec(); }
  void save(c10::OptionalArray<c10::SymInt> &field, const OptionalList<int64_t> &values);
  void save(c10::OptionalArray<c10::SymInt> &field, const std::optional<c10::SymIntArrayRef> &values);
  void save(c10::OptionalArray<int64_t> &field, const OptionalList<int64_t> &values) { field.list = values.values; }
  void save(c10::OptionalArray<double> &field, const OptionalList<double> &values) { field.list = values.values; }
  template <typename Field, typename Value>
  void save(Field &field, const Value &value) {
    field = value;
  }

  // The inputs that have a gradient, in the node's order.
  void wants(const at::Tensor &input);
  void wants(const std::optional<at::Tensor> &input);
  void wants(const std::vector<at::Tensor> &inputs);

  // Computes the gradients, and brings them to the outputs.
  void apply();

 protected:
  // Takes the node over.
  BackwardBase(Call &c, const Saved &saved, torch::autograd::Node *node);
  ~BackwardBase();

 private:
  std::vector<at::Tensor> finish(const torch::autograd::variable_list &gradients) const;
  bool gives_gradient(size_t input) const;

  Call &c_;
  const Saved &saved_;
  decltype(own(static_cast<torch::autograd::Node *>(nullptr))) owned_;
  torch::autograd::edge_list edges_;
  std::vector<at::Tensor> wanted_;
};

template <typename Node>
class Backward : public BackwardBase {
 public:
  Backward(Call &c, const Saved &saved) : Backward(c, saved, new Node()) {}

  Node *operator->() { return node_; }

 private:
  Backward(Call &c, const Saved &saved, Node *node) : BackwardBase(c, saved, node), node_(node) {}

  Node *node_;
};

// The functions that derivatives.yaml's expressions call and PyTorch does not export.
inline c10::SymIntArrayRef strides_or_error(const at::Tensor &input, const char *) { return input.sym_strides(); }
std::vector<std::vector<c10::SymInt>> to_args_sizes_symint(const std::vector<at::Tensor> &tensors);
std::vector<std::vector<int64_t>> to_args_sizes(const std::vector<at::Tensor> &tensors);
std::vector<at::ScalarType> to_args_scalartypes(const std::vector<at::Tensor> &tensors);

}  // namespace ms_ext

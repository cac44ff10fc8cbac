// Which gradients MindSpore needs.
#pragma once

#include "include/pynative/backward/function.h"
#include "include/utils/pynative/variable.h"

namespace ms_ext::pynative {

// While MindSpore records: whether a gradient may be asked for at the tensor.
inline bool has_gradient(const mindspore::tensor::TensorPtr &tensor) {
  static mindspore::pynative::autograd::AutogradContext context;
  return context.NeedGrad(tensor);
}

// While MindSpore differentiates: whether the gradient of a node's input leads to one that the program asked for.
inline bool is_asked(const mindspore::pynative::autograd::BackwardNode &node, size_t input) {
  const mindspore::pynative::autograd::Edge &edge = node.next_edges()[input];
  const auto engine = mindspore::pynative::autograd::impl::CurrentAutoDiffEngine();
  return edge.is_defined() && (engine == nullptr || engine->IsInExecGraph(edge.grad_node));
}

// Has nobody ask for a gradient at the tensor, which MindSpore records from here on, if it follows from no other.
inline void leave_out(const mindspore::tensor::TensorPtr &tensor) {
  const auto &meta = tensor->auto_grad_meta_data();
  if (meta == nullptr) return;
  const auto node = meta->UnsafeGetGradNodeImpl();
  if (node == nullptr || !node->IsLeaf()) return;
  meta->set_grad_node(nullptr);
  meta->set_requires_grad(false);
  meta->set_input_type(mindspore::InputType::kConstant);
}

}  // namespace ms_ext::pynative

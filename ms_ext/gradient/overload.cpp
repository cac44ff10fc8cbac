#include "gradient/overload.h"

#include <algorithm>
#include <utility>

namespace ms_ext {
namespace {

c10::OperatorHandle find_overload(std::string name) {
  name.resize(std::min(name.size(), name.find('#')));  // the number that tells the bridge's operators of one name apart
  if (name.find("::") == std::string::npos) name.insert(0, "aten::");
  return find_operator(name);
}

void flatten(const c10::IValue &value, std::vector<at::Tensor> &tensors) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor &tensor : value.toTensorList()) tensors.push_back(tensor);
  }
}

}  // namespace

Overload::Overload(std::string name, Arguments &args) : op_(find_overload(std::move(name))) {
  for (const auto &argument : op_.schema().arguments()) arguments_.push_back(take_boxed(args, argument));
}

std::vector<at::Tensor> Overload::operator()(at::ArrayRef<at::Tensor> inputs, c10::Device device) const {
  torch::jit::Stack stack;
  stack.reserve(arguments_.size());
  std::vector<at::Tensor> results;
  for (const auto &argument : arguments_) {
    stack.push_back(argument.fill(inputs, device));
    if (argument.is_written) results.push_back(stack.back().toTensor());
  }
  op_.callBoxed(stack);
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!is_written(op_.schema().returns()[i])) flatten(stack[i], results);
  }
  return results;
}

bool Overload::is_state(size_t input) const {
  for (const auto &argument : arguments_) {
    if (!argument.is_state) continue;
    for (const auto &tensor : argument.tensors) {
      if (tensor && tensor->index == static_cast<int>(input)) return true;
    }
  }
  return false;
}

}  // namespace ms_ext

#include "gradient/boxed_call.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace ms_ext {
namespace {

template <typename T>
c10::IValue read(Arguments &args) {
  T value{};
  args >> value;
  return c10::IValue(std::move(value));
}

template <typename T>
c10::IValue read_enum(Arguments &args) {
  T value{};
  args >> value;
  return c10::IValue(static_cast<int64_t>(value));
}

c10::IValue read_value(Arguments &args, const c10::TypePtr &type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      if (args.take_none()) return c10::IValue();
      return read_value(args, type->castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::ListType: {
      const auto element = type->castRaw<c10::ListType>()->getElementType();
      const bool symbolic = element->kind() == c10::TypeKind::SymIntType;
      c10::impl::GenericList list(symbolic ? static_cast<c10::TypePtr>(c10::IntType::get()) : element);
      const size_t size = args.list_size();
      for (size_t i = 0; i < size; ++i) list.push_back(read_value(args, element));
      return list;
    }
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return read<int64_t>(args);
    case c10::TypeKind::FloatType:
      return read<double>(args);
    case c10::TypeKind::BoolType:
      return read<bool>(args);
    case c10::TypeKind::NumberType:
      return read<at::Scalar>(args);
    case c10::TypeKind::StringType:
      return read<std::string>(args);
    case c10::TypeKind::ScalarTypeType:
      return read_enum<c10::ScalarType>(args);
    case c10::TypeKind::LayoutType:
      return read_enum<c10::Layout>(args);
    case c10::TypeKind::MemoryFormatType:
      return read_enum<c10::MemoryFormat>(args);
    default:
      throw std::invalid_argument("no boxed form for the argument type " + type->str());
  }
}

// What is left of a type after its optional, and of a list after the list.
const c10::Type *element_of(const c10::Type *type) {
  if (const auto *optional = type->castRaw<c10::OptionalType>()) return optional->getElementType().get();
  if (const auto *list = type->castRaw<c10::ListType>()) return list->getElementType().get();
  return type;
}

c10::OperatorHandle find(Arguments &args) {
  std::string op;
  args >> op;
  op.resize(std::min(op.size(), op.find('#')));  // the number that tells the bridge's operators of one name apart
  if (op.find("::") == std::string::npos) op.insert(0, "aten::");
  const auto dot = op.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(op.substr(0, dot).c_str(),
                                                        dot == std::string::npos ? "" : op.substr(dot + 1).c_str());
}

void flatten(const c10::IValue &value, Tensors &tensors) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor &tensor : value.toTensorList()) tensors.push_back(tensor);
  }
}

std::optional<at::Tensor> tensor_of(const std::optional<Tensor> &tensor, at::ArrayRef<at::Tensor> inputs) {
  if (!tensor) return std::nullopt;
  return tensor->index < 0 ? tensor->number : inputs[static_cast<size_t>(tensor->index)];
}

}  // namespace

BoxedCall::BoxedCall(Arguments &args) : op_(find(args)) {}

void BoxedCall::take_arguments(Arguments &args) {
  for (const auto &argument : op_.schema().arguments()) arguments_.push_back(take(args, argument));
}

BoxedCall::Argument BoxedCall::take(Arguments &args, const c10::Argument &argument) {
  Argument boxed;
  const c10::TypePtr type = argument.real_type();
  const bool is_list = type->kind() == c10::TypeKind::ListType;
  const c10::Type *element = element_of(type.get());
  const bool optional_items = is_list && element->kind() == c10::TypeKind::OptionalType;
  if (optional_items) element = element_of(element);
  if (element->kind() == c10::TypeKind::GeneratorType) return boxed;
  if (element->kind() == c10::TypeKind::DeviceObjType) {
    boxed.kind = Argument::kDevice;
    return boxed;
  }
  if (element->kind() != c10::TypeKind::TensorType) {
    boxed.value = read_value(args, type);
    return boxed;
  }
  boxed.kind = optional_items ? Argument::kOptionalTensors : is_list ? Argument::kTensors : Argument::kTensor;
  boxed.is_state = argument.name() == "running_mean" || argument.name() == "running_var";
  if (is_list) {
    args >> boxed.tensors;
  } else {
    args >> boxed.tensors.emplace_back();
  }
  return boxed;
}

c10::IValue BoxedCall::fill(const Argument &argument, at::ArrayRef<at::Tensor> inputs, c10::Device device) {
  switch (argument.kind) {
    case Argument::kDevice:
      return device;
    case Argument::kTensor: {
      const std::optional<at::Tensor> tensor = tensor_of(argument.tensors[0], inputs);
      return argument.is_state && tensor ? tensor->clone() : tensor;
    }
    case Argument::kTensors: {
      c10::List<at::Tensor> list;
      for (const auto &tensor : argument.tensors) list.push_back(*tensor_of(tensor, inputs));
      return list;
    }
    case Argument::kOptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto &tensor : argument.tensors) list.push_back(tensor_of(tensor, inputs));
      return list;
    }
    default:
      return argument.value;
  }
}

Tensors BoxedCall::operator()(at::ArrayRef<at::Tensor> inputs, c10::Device device) const {
  torch::jit::Stack stack;
  for (const auto &argument : arguments_) stack.push_back(fill(argument, inputs, device));
  op_.callBoxed(stack);
  Tensors results;
  for (const auto &value : stack) flatten(value, results);
  return results;
}

bool BoxedCall::is_state(size_t input) const {
  for (const auto &argument : arguments_) {
    if (!argument.is_state) continue;
    for (const auto &tensor : argument.tensors) {
      if (tensor && tensor->index == static_cast<int>(input)) return true;
    }
  }
  return false;
}

}  // namespace ms_ext

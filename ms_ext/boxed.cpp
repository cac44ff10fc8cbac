#include "boxed.h"

#include <stdexcept>

namespace ms_ext {
namespace {

template <typename T>
c10::IValue take(Arguments &args) {
  T value{};
  args >> value;
  return c10::IValue(std::move(value));
}

template <typename T>
c10::IValue take_enum(Arguments &args) {
  T value{};
  args >> value;
  return c10::IValue(static_cast<int64_t>(value));
}

c10::IValue take_value(Arguments &args, const c10::TypePtr &type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      if (args.take_none()) return c10::IValue();
      return take_value(args, type->castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::ListType: {
      const auto element = type->castRaw<c10::ListType>()->getElementType();
      const bool symbolic = element->kind() == c10::TypeKind::SymIntType;
      c10::impl::GenericList list(symbolic ? static_cast<c10::TypePtr>(c10::IntType::get()) : element);
      const size_t size = args.list_size();
      for (size_t i = 0; i < size; ++i) list.push_back(take_value(args, element));
      return list;
    }
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return take<int64_t>(args);
    case c10::TypeKind::FloatType:
      return take<double>(args);
    case c10::TypeKind::BoolType:
      return take<bool>(args);
    case c10::TypeKind::NumberType:
      return take<at::Scalar>(args);
    case c10::TypeKind::StringType:
      return take<std::string>(args);
    case c10::TypeKind::ScalarTypeType:
      return take_enum<c10::ScalarType>(args);
    case c10::TypeKind::LayoutType:
      return take_enum<c10::Layout>(args);
    case c10::TypeKind::MemoryFormatType:
      return take_enum<c10::MemoryFormat>(args);
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

std::optional<at::Tensor> fill_one(const std::optional<Tensor> &tensor, bool is_copied,
                                   at::ArrayRef<at::Tensor> inputs) {
  if (!tensor) return std::nullopt;
  if (tensor->index < 0) return tensor->number;
  const at::Tensor &input = inputs[static_cast<size_t>(tensor->index)];
  return is_copied ? input.clone() : input;
}

}  // namespace

c10::OperatorHandle find_operator(const std::string &name) {
  const auto dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(),
                                                        dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

bool is_written(const c10::Argument &argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

Boxed take_boxed(Arguments &args, const c10::Argument &argument) {
  Boxed boxed;
  const c10::TypePtr type = argument.real_type();
  const bool is_list = type->kind() == c10::TypeKind::ListType;
  const c10::Type *element = element_of(type.get());
  const bool optional_items = is_list && element->kind() == c10::TypeKind::OptionalType;
  if (optional_items) element = element_of(element);
  if (element->kind() == c10::TypeKind::GeneratorType) return boxed;
  if (element->kind() == c10::TypeKind::DeviceObjType) {
    boxed.kind = Boxed::kDevice;
    return boxed;
  }
  if (element->kind() != c10::TypeKind::TensorType) {
    boxed.value = take_value(args, type);
    return boxed;
  }
  boxed.is_optional = type->kind() == c10::TypeKind::OptionalType;
  boxed.kind = optional_items ? Boxed::kOptionalTensors : is_list ? Boxed::kTensors : Boxed::kTensor;
  boxed.is_state = argument.name() == "running_mean" || argument.name() == "running_var";
  boxed.is_written = ms_ext::is_written(argument);
  if (is_list) {
    args >> boxed.tensors;
  } else {
    args >> boxed.tensors.emplace_back();
  }
  return boxed;
}

c10::IValue Boxed::fill(at::ArrayRef<at::Tensor> inputs, c10::Device device) const {
  switch (kind) {
    case Boxed::kDevice:
      return device;
    case Boxed::kTensor: {
      if (tensors[0] && tensors[0]->index >= 0 && !is_state && !is_written) {  // nearly always
        return tensor(inputs);
      }
      const auto filled = fill_one(tensors[0], is_state || is_written, inputs);
      return is_optional ? c10::IValue(filled) : c10::IValue(filled.value_or(at::Tensor()));
    }
    case Boxed::kTensors: {
      c10::List<at::Tensor> list;
      for (const auto &tensor : tensors) list.push_back(fill_one(tensor, false, inputs).value_or(at::Tensor()));
      return list;
    }
    case Boxed::kOptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto &tensor : tensors) list.push_back(fill_one(tensor, false, inputs));
      return list;
    }
    case Boxed::kNumber: {
      const auto number = fill_one(tensors[0], false, inputs)->item<double>();
      if (!is_wrapped) return number;
      at::Tensor wrapped = c10::scalar_to_tensor(number);
      wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
      return wrapped;
    }
    default:
      return value;
  }
}

}  // namespace ms_ext

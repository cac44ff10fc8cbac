// The parts of an optimizer's step (repeated_step.h).
#pragma once

#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ms_ext::repeated {

namespace py = pybind11;
using c10::IValue;
using Registers = std::vector<IValue>;
using Uses = std::set<size_t>;  // of registers

inline size_t register_in(const py::handle &tuple) {
  return py::cast<size_t>(py::reinterpret_borrow<py::tuple>(tuple)[0]);
}

inline bool is_register(const py::handle &object) { return PyTuple_Check(object.ptr()); }

// The type of what an optional or a list holds; the type itself if it is neither.
inline c10::TypePtr inner(const c10::TypePtr &type, c10::TypeKind kind) {
  return type->kind() == kind ? type->containedType(0) : type;
}

// What Python gives for a type, as PyTorch takes it: a number for a tensor, too.
inline IValue constant(const py::handle &object, const c10::TypePtr &type) {
  const torch::jit::ToIValueAllowNumbersAsTensors allow(true);
  return torch::jit::toIValue(object, type);
}

// The number in a tensor of no dimensions.
inline double number_of(const at::Tensor &tensor) {
  switch (tensor.is_cpu() && !tensor.is_neg() ? tensor.scalar_type() : at::ScalarType::Undefined) {
    case at::kFloat:
      return *tensor.const_data_ptr<float>();
    case at::kDouble:
      return *tensor.const_data_ptr<double>();
    case at::kLong:
      return static_cast<double>(*tensor.const_data_ptr<int64_t>());
    default:
      return tensor.item().toDouble();
  }
}

// One value: a constant, or what is in a register.
class Operand {
 public:
  Operand(const py::handle &object, const c10::TypePtr &type)
      : is_register_(is_register(object)),
        wants_tensor_(inner(type, c10::TypeKind::OptionalType)->kind() == c10::TypeKind::TensorType) {
    if (is_register_) {
      register_ = register_in(object);
    } else {
      value_ = constant(object, type);
    }
  }

  explicit Operand(size_t reg) : is_register_(true), wants_tensor_(false), register_(reg) {}
  explicit Operand(IValue constant) : is_register_(false), wants_tensor_(false), value_(std::move(constant)) {}

  IValue in(const Registers &registers) const {
    if (!is_register_) return value_;
    const IValue &value = registers[register_];
    if (!wants_tensor_ || value.isTensor()) return value;
    at::Tensor number = at::scalar_to_tensor(value.toScalar());
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  }

  void note_use(Uses *uses) const {
    if (is_register_) uses->insert(register_);
  }

  std::optional<size_t> reg() const { return is_register_ ? std::optional(register_) : std::nullopt; }
  const IValue &value() const { return value_; }  // of one that is no register

  // What is the same for the same tensor.
  using Key = std::pair<size_t, const void *>;
  Key key() const { return {register_, is_register_ ? nullptr : value_.toTensor().unsafeGetTensorImpl()}; }

  double number_in(const Registers &registers) const {
    const IValue &value = is_register_ ? registers[register_] : value_;
    return value.isTensor() ? number_of(value.toTensor()) : value.toScalar().toDouble();
  }

 private:
  bool is_register_, wants_tensor_;
  size_t register_ = 0;
  IValue value_;
};

using Operands = std::vector<Operand>;

// An argument of a call: an operand, or a list of them.
class Argument {
 public:
  Argument(const py::handle &object, const c10::TypePtr &type) {
    const py::list items = PyList_Check(object.ptr()) ? py::reinterpret_borrow<py::list>(object) : py::list();
    if (std::any_of(items.begin(), items.end(), is_register)) {
      item_type_ = inner(inner(type, c10::TypeKind::OptionalType), c10::TypeKind::ListType);
      for (const py::handle item : items) operands_.emplace_back(item, item_type_);
    } else {
      operands_.emplace_back(object, type);
    }
  }

  IValue in(const Registers &registers) const {
    if (item_type_ == nullptr) return operands_[0].in(registers);
    c10::impl::GenericList list(item_type_);
    list.reserve(operands_.size());
    for (const Operand &operand : operands_) list.push_back(operand.in(registers));
    return list;
  }

  void note_uses(Uses *uses) const {
    for (const Operand &operand : operands_) operand.note_use(uses);
  }

  // Those of a list, or the only one.
  Operands operands() const {
    if (!is_list() || item_type_ != nullptr) return operands_;
    Operands items;
    for (const IValue &item : operands_[0].value().toListRef()) items.emplace_back(item);
    return items;
  }

  bool is_list() const { return item_type_ != nullptr || (!operands_[0].reg() && operands_[0].value().isList()); }

 private:
  c10::TypePtr item_type_;  // null if it is one operand
  Operands operands_;
};

// The parts of a step. `run` leaves its results in the registers.
class OperatorCall {
 public:
  explicit OperatorCall(const py::tuple &part)
      : op_(c10::Dispatcher::singleton().findSchemaOrThrow(py::cast<std::string>(part[1]).c_str(),
                                                           py::cast<std::string>(part[2]).c_str())) {
    const auto &schema = op_.schema().arguments();
    const py::list given = part[3];
    TORCH_CHECK(given.size() == schema.size(), op_.schema().name(), " takes ", schema.size(), " arguments");
    for (size_t i = 0; i < schema.size(); ++i) arguments_.emplace_back(given[i], schema[i].type());
    for (const py::handle result : part[4]) results_.push_back(result.is_none() ? -1 : py::cast<int64_t>(result));
  }

  void run(Registers *registers) const {
    torch::jit::Stack stack;
    stack.reserve(arguments_.size());
    for (const Argument &argument : arguments_) stack.push_back(argument.in(*registers));
    op_.callBoxed(stack);
    size_t i = 0;
    for (IValue &value : stack) {
      if (value.isTensorList()) {
        for (const at::Tensor &tensor : value.toTensorVector()) keep(registers, i++, tensor);
      } else {
        keep(registers, i++, std::move(value));
      }
    }
  }

  const c10::OperatorName &name() const { return op_.operator_name(); }
  const std::vector<Argument> &arguments() const { return arguments_; }
  const std::vector<int64_t> &results() const { return results_; }

  // The registers that it reads or writes.
  void note_uses(Uses *uses) const {
    for (const Argument &argument : arguments_) argument.note_uses(uses);
    for (const int64_t result : results_) {
      if (result >= 0) uses->insert(static_cast<size_t>(result));
    }
  }

 private:
  void keep(Registers *registers, size_t result, IValue value) const {
    if (results_.at(result) >= 0) (*registers)[static_cast<size_t>(results_[result])] = std::move(value);
  }

  c10::OperatorHandle op_;
  std::vector<Argument> arguments_;
  std::vector<int64_t> results_;  // -1 if nobody uses it
};

class Read {
 public:
  explicit Read(const py::tuple &part) : tensor_(part[1], c10::TensorType::get()), result_(py::cast<size_t>(part[2])) {}

  void run(Registers *registers) const { (*registers)[result_] = number_of(tensor_.in(*registers).toTensor()); }

  void note_uses(Uses *uses) const {
    tensor_.note_use(uses);
    uses->insert(result_);
  }

  const Operand &tensor() const { return tensor_; }

 private:
  Operand tensor_;
  size_t result_;
};

// Python's arithmetic on floats.
class Number {
 public:
  explicit Number(const py::tuple &part)
      : sign_(sign_of(py::cast<std::string>(part[1]))),
        left_(part[2], c10::FloatType::get()),
        right_(part[3], c10::FloatType::get()),
        result_(py::cast<size_t>(part[4])) {}

  void run(Registers *registers) const {
    (*registers)[result_] = of(left_.in(*registers).toDouble(), right_.in(*registers).toDouble());
  }

  void note_uses(Uses *uses) const {
    left_.note_use(uses);
    right_.note_use(uses);
    uses->insert(result_);
  }

 private:
  static char sign_of(const std::string &sign) { return sign == "**" ? '^' : sign[0]; }

  double of(double left, double right) const {
    switch (sign_) {
      case '+':
        return left + right;
      case '-':
        return left - right;
      case '*':
        return left * right;
      case '/':
        TORCH_CHECK(right != 0, "float division by zero");
        return left / right;
      default:
        return std::pow(left, right);
    }
  }

  char sign_;
  Operand left_, right_;
  size_t result_;
};

using Part = std::variant<OperatorCall, Read, Number>;

inline void note_uses(const Part &part, Uses *uses) {
  std::visit([&](const auto &one) { one.note_uses(uses); }, part);
}

inline Part part_of(const py::tuple &part) {
  const auto kind = py::cast<std::string>(part[0]);
  if (kind == "call") return OperatorCall(part);
  if (kind == "read") return Read(part);
  return Number(part);
}

// What an optimizer may ask of a gradient.
struct Layout {
  explicit Layout(const at::Tensor &tensor)
      : sizes(tensor.sizes().vec()), strides(tensor.strides().vec()), dtype(tensor.dtype()), device(tensor.device()) {}

  bool is_of(const at::Tensor &tensor) const {
    return tensor.sizes() == sizes && tensor.strides() == strides && tensor.dtype() == dtype &&
           tensor.device() == device && !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
  }

  std::vector<int64_t> sizes, strides;
  caffe2::TypeMeta dtype;
  c10::Device device;
};

}  // namespace ms_ext::repeated

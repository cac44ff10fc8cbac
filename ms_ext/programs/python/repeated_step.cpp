#include "programs/python/repeated_step.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ms_ext::repeated {

namespace py = pybind11;
using c10::IValue;
using Registers = std::vector<IValue>;
using Tensors = std::vector<at::Tensor>;
using Uses = std::set<size_t>;  // of registers

size_t register_in(const py::handle &tuple) { return py::cast<size_t>(py::reinterpret_borrow<py::tuple>(tuple)[0]); }

bool is_register(const py::handle &object) { return PyTuple_Check(object.ptr()); }

// The type of what an optional or a list holds; the type itself if it is neither.
c10::TypePtr inner(const c10::TypePtr &type, c10::TypeKind kind) {
  return type->kind() == kind ? type->containedType(0) : type;
}

// What Python gives for a type, as PyTorch takes it: a number for a tensor, too.
IValue constant(const py::handle &object, const c10::TypePtr &type) {
  const torch::jit::ToIValueAllowNumbersAsTensors allow(true);
  return torch::jit::toIValue(object, type);
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

 private:
  bool is_register_, wants_tensor_;
  size_t register_ = 0;
  IValue value_;
};

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

 private:
  c10::TypePtr item_type_;  // null if it is one operand
  std::vector<Operand> operands_;
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

  void run(Registers *registers) const { (*registers)[result_] = tensor_.in(*registers).toTensor().item().toDouble(); }

  void note_uses(Uses *uses) const {
    tensor_.note_use(uses);
    uses->insert(result_);
  }

 private:
  Operand tensor_;
  size_t result_;
};

// Python's arithmetic on floats.
class Number {
 public:
  explicit Number(const py::tuple &part)
      : sign_(py::cast<std::string>(part[1])),
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
  double of(double left, double right) const {
    if (sign_ == "+") return left + right;
    if (sign_ == "-") return left - right;
    if (sign_ == "*") return left * right;
    if (sign_ == "/") {
      TORCH_CHECK(right != 0, "float division by zero");
      return left / right;
    }
    return std::pow(left, right);
  }

  std::string sign_;
  Operand left_, right_;
  size_t result_;
};

using Part = std::variant<OperatorCall, Read, Number>;

Part part_of(const py::tuple &part) {
  const auto kind = py::cast<std::string>(part[0]);
  if (kind == "call") return OperatorCall(part);
  if (kind == "read") return Read(part);
  return Number(part);
}

Tensors tensors_in(PyObject *list) {
  Tensors tensors;
  for (const py::handle item : py::reinterpret_borrow<py::list>(list)) {
    tensors.push_back(THPVariable_Unpack(item.ptr()));
  }
  return tensors;
}

// What an optimizer may ask of a gradient.
struct Layout {
  explicit Layout(const at::Tensor &tensor)
      : sizes(tensor.sizes().vec()), strides(tensor.strides().vec()), dtype(tensor.dtype()), device(tensor.device()) {}

  bool is_of(const at::Tensor &tensor) const {
    return tensor.sizes() == sizes && tensor.strides() == strides && tensor.dtype() == dtype &&
           tensor.device() == device && !tensor.is_conj() && !tensor.is_neg();
  }

  std::vector<int64_t> sizes, strides;
  caffe2::TypeMeta dtype;
  c10::Device device;
};

}  // namespace ms_ext::repeated

namespace ms_ext {

class RepeatedStep {
 public:
  RepeatedStep(const pybind11::list &parts, const repeated::Tensors &gradients) {
    for (const at::Tensor &gradient : gradients) gradients_.emplace_back(gradient);
    for (const pybind11::handle part : parts) {
      parts_.push_back(repeated::part_of(pybind11::reinterpret_borrow<pybind11::tuple>(part)));
    }
    std::vector<repeated::Uses> uses(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      std::visit([&](const auto &part) { part.note_uses(&uses[i]); }, parts_[i]);
    }
    repeated::Uses later;
    last_.resize(parts_.size());
    for (size_t i = parts_.size(); i-- > 0;) {
      std::set_difference(uses[i].begin(), uses[i].end(), later.begin(), later.end(), std::back_inserter(last_[i]));
      later.insert(uses[i].begin(), uses[i].end());
    }
    if (!later.empty()) registers_ = *later.rbegin() + 1;
  }

  bool is_for(const repeated::Tensors &gradients) const {
    return std::equal(
        gradients_.begin(), gradients_.end(), gradients.begin(), gradients.end(),
        [](const repeated::Layout &layout, const at::Tensor &gradient) { return layout.is_of(gradient); });
  }

  void run(repeated::Tensors gradients, const std::vector<double> &rates) const {
    const c10::AutoGradMode no_recording(false);
    repeated::Registers registers;
    registers.reserve(std::max(registers_, gradients.size() + rates.size()));
    for (at::Tensor &gradient : gradients) registers.emplace_back(std::move(gradient));
    for (const double rate : rates) registers.emplace_back(rate);
    registers.resize(registers.capacity());
    for (size_t i = 0; i < parts_.size(); ++i) {
      std::visit([&](const auto &part) { part.run(&registers); }, parts_[i]);
      for (const size_t reg : last_[i]) registers[reg] = c10::IValue();
    }
  }

 private:
  std::vector<repeated::Layout> gradients_;
  std::vector<repeated::Part> parts_;
  std::vector<std::vector<size_t>> last_;  // the registers that no later part uses
  size_t registers_ = 0;
};

}  // namespace ms_ext

using ms_ext::RepeatedStep;

extern "C" {

RepeatedStep *ms_ext_repeated_step(PyObject *parts, PyObject *gradients) {
  try {
    return new RepeatedStep(pybind11::reinterpret_borrow<pybind11::list>(parts),
                            ms_ext::repeated::tensors_in(gradients));
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

void ms_ext_free_repeated_step(RepeatedStep *step) { delete step; }

int ms_ext_repeat_step(const RepeatedStep *step, PyObject *gradients, PyObject *rates) {
  try {
    ms_ext::repeated::Tensors given = ms_ext::repeated::tensors_in(gradients);
    if (!step->is_for(given)) return 0;
    const auto numbers = pybind11::cast<std::vector<double>>(pybind11::handle(rates));
    const pybind11::gil_scoped_release released;
    step->run(std::move(given), numbers);
    return 1;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return -1;
  }
}

}  // extern "C"

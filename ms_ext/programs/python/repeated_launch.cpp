#include "programs/python/repeated_launch.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "programs/python/repeated_step.h"

namespace ms_ext {

namespace py = pybind11;

namespace {

void *as_pointer(const py::handle &address) { return PyLong_AsVoidPtr(address.ptr()); }

}  // namespace

RepeatedLaunch::RepeatedLaunch(const py::dict &given)
    : contents_(given["containers"], /*besides=*/nullptr, /*is_deep=*/true),
      rate_(static_cast<const float *>(as_pointer(given["rate"]))),
      value_(*rate_),
      gradients_(given["gradients"]),
      owner_(given["owner"]),
      step_(static_cast<const RepeatedStep *>(as_pointer(given["step"]))) {
  for (const py::handle address : given["addresses"]) addresses_.push_back(as_pointer(address));
  for (const py::handle parameter : given["parameters"]) {
    const at::Tensor &tensor = THPVariable_Unpack(parameter.ptr());
    parameters_.emplace_back(tensor, tensor.const_data_ptr());
  }
  for (const py::handle question : given["questions"]) {
    const auto parts = py::reinterpret_borrow<py::tuple>(question);
    questions_.push_back({parts[0], parts[1], parts[2]});
  }
}

bool RepeatedLaunch::is_again(void *const *addresses, size_t count) const {
  const auto has_answer = [](const Question &question) {
    return question.function(*question.arguments).equal(question.answer);
  };
  const auto is_there = [](const auto &parameter) { return parameter.first.const_data_ptr() == parameter.second; };
  return std::equal(addresses_.begin(), addresses_.end(), addresses, addresses + count) && contents_.are_same() &&
         std::all_of(parameters_.begin(), parameters_.end(), is_there) &&
         std::all_of(questions_.begin(), questions_.end(), has_answer) && *rate_ == value_;
}

bool RepeatedLaunch::run(void *const *addresses, size_t count) const {
  return is_again(addresses, count) && step_->again(gradients_);
}

}  // namespace ms_ext

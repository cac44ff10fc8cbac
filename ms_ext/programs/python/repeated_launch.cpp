#include "programs/python/repeated_launch.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "programs/python/repeated_step.h"

namespace ms_ext {

namespace py = pybind11;

namespace {

void *as_pointer(const py::handle &address) { return address.is_none() ? nullptr : PyLong_AsVoidPtr(address.ptr()); }

// A tensor like this one at another address.
at::Tensor like(const at::Tensor &tensor, void *address) {
  return at::for_blob(address, tensor.sizes()).options(tensor.options()).target_device(tensor.device()).make_tensor();
}

}  // namespace

RepeatedLaunch::RepeatedLaunch(const py::dict &given)
    : contents_(given["containers"], /*besides=*/nullptr, /*is_deep=*/true),
      rate_(static_cast<const float *>(as_pointer(given["rate"]))),
      value_(*rate_),
      owner_(given["owner"]),
      step_(static_cast<const RepeatedStep *>(as_pointer(given["step"]))) {
  for (const py::handle address : given["addresses"]) addresses_.push_back(as_pointer(address));
  gradients_ = tensors_in(given["gradients"]);
  for (const py::handle position : given["positions"]) {
    positions_.push_back(position.is_none() ? addresses_.size() : py::cast<size_t>(position));
  }
  for (const py::handle zeros : given["zeros"]) zeros_.push_back(py::cast<std::pair<size_t, size_t>>(zeros));
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
  const auto is_zero = [addresses](const std::pair<size_t, size_t> &zeros) {
    const auto *const bytes = static_cast<const char *>(addresses[zeros.first]);
    return std::all_of(bytes, bytes + zeros.second, [](char byte) { return byte == 0; });
  };
  const auto is_at = [](void *own, void *address) { return own == nullptr || own == address; };
  return std::equal(addresses_.begin(), addresses_.end(), addresses, addresses + count, is_at) &&
         std::all_of(zeros_.begin(), zeros_.end(), is_zero) && contents_.are_same() &&
         std::all_of(parameters_.begin(), parameters_.end(), is_there) &&
         std::all_of(questions_.begin(), questions_.end(), has_answer) && *rate_ == value_;
}

bool RepeatedLaunch::run(void *const *addresses, size_t count) const {
  if (!is_again(addresses, count)) return false;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    at::Tensor &gradient = gradients_[i];
    if (gradient.defined() && gradient.const_data_ptr() != addresses[positions_[i]]) {
      gradient = like(gradient, addresses[positions_[i]]);
    }
  }
  return step_->again(gradients_);
}

}  // namespace ms_ext

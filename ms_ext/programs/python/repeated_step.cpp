#include "programs/python/repeated_step.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

namespace ms_ext {

namespace py = pybind11;

using repeated::Layout;
using repeated::Registers;

std::vector<at::Tensor> tensors_in(const py::list &list) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(list.size());
  for (const py::handle object : list) {
    tensors.push_back(object.is_none() ? at::Tensor() : THPVariable_Unpack(object.ptr()));
  }
  return tensors;
}

RepeatedStep::RepeatedStep(const py::list &parts, const py::list &gradients, py::object optimizer, py::list containers)
    : optimizer_(std::move(optimizer)), containers_(std::move(containers)) {
  std::vector<at::Tensor> given;
  for (const at::Tensor &gradient : tensors_in(gradients)) {
    gradients_.emplace_back();
    if (gradient.defined()) gradients_.back() = Layout(given.emplace_back(gradient));
  }
  for (const py::handle part : parts) parts_.push_back(repeated::part_of(py::reinterpret_borrow<py::tuple>(part)));
  {
    const py::gil_scoped_release released;  // a GPU's kernels are compiled and compared
    swept_ = repeated::bring_together(&parts_, given);
  }
  std::vector<repeated::Uses> uses(parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) note_uses(parts_[i], &uses[i]);
  repeated::Uses later;
  last_.resize(parts_.size());
  for (size_t i = parts_.size(); i-- > 0;) {
    std::set_difference(uses[i].begin(), uses[i].end(), later.begin(), later.end(), std::back_inserter(last_[i]));
    later.insert(uses[i].begin(), uses[i].end());
  }
  if (!later.empty()) registers_ = *later.rbegin() + 1;
  look_again();
}

void RepeatedStep::look_again() {
  step_ = py::type::of(optimizer_).attr("step");
  py::list roots(containers_);
  roots.append(optimizer_.attr("__dict__"));
  contents_.emplace(roots, /*besides=*/"lr", /*is_deep=*/true);
}

bool RepeatedStep::is_for(const std::vector<at::Tensor> &gradients) const {
  return std::equal(gradients_.begin(), gradients_.end(), gradients.begin(), gradients.end(),
                    [](const std::optional<Layout> &layout, const at::Tensor &gradient) {
                      return layout.has_value() == gradient.defined() && (!layout || layout->is_of(gradient));
                    });
}

bool RepeatedStep::find_rates(Registers *registers) const {
  for (const py::handle group : optimizer_.attr("param_groups")) {
    const py::object rate = group["lr"];
    if (!PyFloat_CheckExact(rate.ptr())) return false;
    registers->emplace_back(PyFloat_AS_DOUBLE(rate.ptr()));
  }
  return true;
}

bool RepeatedStep::again(const std::vector<at::Tensor> &gradients) const {
  const py::object step = py::type::of(optimizer_).attr("step");
  if (!is_for(gradients) || !step.is(step_) || !contents_->are_same()) return false;
  Registers registers;
  registers.reserve(std::max(registers_, gradients.size()));
  for (const at::Tensor &gradient : gradients) {
    if (gradient.defined()) registers.emplace_back(gradient);
  }
  if (!find_rates(&registers)) return false;
  registers.resize(std::max(registers_, registers.size()));
  const py::gil_scoped_release released;
  run(&registers);
  return true;
}

void RepeatedStep::run(Registers *registers) const {
  const c10::AutoGradMode no_recording(false);
  auto swept = swept_.begin();
  for (size_t i = 0; i < parts_.size();) {
    const bool is_swept = swept != swept_.end() && swept->begin() == i;
    size_t end = i + 1;
    if (is_swept && swept->run(registers)) {
      end = swept->end();
    } else {
      std::visit([&](const auto &part) { part.run(registers); }, parts_[i]);
    }
    if (is_swept) ++swept;
    for (; i < end; ++i) {
      for (const size_t reg : last_[i]) (*registers)[reg] = c10::IValue();
    }
  }
}

}  // namespace ms_ext

using ms_ext::RepeatedStep;

extern "C" {

void *ms_ext_repeated_step(PyObject *parts, PyObject *gradients, PyObject *optimizer, PyObject *containers) {
  try {
    return new RepeatedStep(pybind11::reinterpret_borrow<pybind11::list>(parts),
                            pybind11::reinterpret_borrow<pybind11::list>(gradients),
                            pybind11::reinterpret_borrow<pybind11::object>(optimizer),
                            pybind11::reinterpret_borrow<pybind11::list>(containers));
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

void ms_ext_free_repeated_step(void *step) { delete static_cast<RepeatedStep *>(step); }

int ms_ext_repeat_step(const void *step, PyObject *gradients) {
  try {
    const auto tensors = ms_ext::tensors_in(pybind11::reinterpret_borrow<pybind11::list>(gradients));
    return static_cast<const RepeatedStep *>(step)->again(tensors) ? 1 : 0;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return -1;
  }
}

bool ms_ext_look_at_step_again(void *step) {
  try {
    static_cast<RepeatedStep *>(step)->look_again();
    return true;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return false;
  }
}

}  // extern "C"

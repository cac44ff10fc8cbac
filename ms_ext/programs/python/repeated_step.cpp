#include "programs/python/repeated_step.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>
#include <vector>

#include "programs/python/step_parts.h"
#include "programs/python/swept_calls.h"

namespace ms_ext::repeated {

Tensors tensors_in(PyObject *list) {
  Tensors tensors;
  for (const py::handle item : py::reinterpret_borrow<py::list>(list)) {
    tensors.push_back(THPVariable_Unpack(item.ptr()));
  }
  return tensors;
}

}  // namespace ms_ext::repeated

namespace ms_ext {

class RepeatedStep {
 public:
  RepeatedStep(const pybind11::list &parts, const repeated::Tensors &gradients) {
    for (const at::Tensor &gradient : gradients) gradients_.emplace_back(gradient);
    for (const pybind11::handle part : parts) {
      parts_.push_back(repeated::part_of(pybind11::reinterpret_borrow<pybind11::tuple>(part)));
    }
    swept_ = repeated::bring_together(&parts_, gradients_);
    std::vector<repeated::Uses> uses(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) note_uses(parts_[i], &uses[i]);
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
    auto swept = swept_.begin();
    for (size_t i = 0; i < parts_.size();) {
      const bool is_swept = swept != swept_.end() && swept->begin() == i;
      size_t end = i + 1;
      if (is_swept && swept->run(&registers)) {
        end = swept->end();
      } else {
        std::visit([&](const auto &part) { part.run(&registers); }, parts_[i]);
      }
      if (is_swept) ++swept;
      for (; i < end; ++i) {
        for (const size_t reg : last_[i]) registers[reg] = c10::IValue();
      }
    }
  }

 private:
  std::vector<repeated::Layout> gradients_;
  std::vector<repeated::Part> parts_;
  std::vector<repeated::SweptCalls> swept_;
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

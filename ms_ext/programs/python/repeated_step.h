// A step of an optimizer, made again call by call without Python's optimizer. bridge/optim/recording.py writes it down.
#pragma once

#include <Python.h>

#include <optional>
#include <vector>

#include "programs/python/contents.h"
#include "programs/python/step_parts.h"
#include "programs/python/swept_calls.h"

namespace ms_ext {

// PyTorch's tensors in a list; None is an undefined one.
std::vector<at::Tensor> tensors_in(const pybind11::list &list);

// Used with the GIL.
class __attribute__((visibility("hidden"))) RepeatedStep {
 public:
  // Args: see ms_ext_repeated_step.
  RepeatedStep(const pybind11::list &parts, const pybind11::list &gradients, pybind11::object optimizer,
               pybind11::list containers);

  // Makes the step, if all is as when it was written down, or looked at again. If not, it does nothing: false.
  // The gradient of a parameter that has none is undefined.
  bool again(const std::vector<at::Tensor> &gradients) const;

  void look_again();

 private:
  bool is_for(const std::vector<at::Tensor> &gradients) const;
  bool find_rates(repeated::Registers *registers) const;
  void run(repeated::Registers *registers) const;

  std::vector<std::optional<repeated::Layout>> gradients_;
  std::vector<repeated::Part> parts_;
  std::vector<repeated::SweptCalls> swept_;
  std::vector<std::vector<size_t>> last_;  // the registers that no later part uses
  size_t registers_ = 0;
  pybind11::object optimizer_, step_;
  pybind11::list containers_;
  std::optional<Contents> contents_;
};

}  // namespace ms_ext

extern "C" {

// Python calls these functions, with the GIL. They set its error where they fail.
//
// Args: the step's parts in order, each a tuple:
//     ("call", operator, overload, arguments in the order of the schema, the register of each result or None)
//     ("read", tensor, the register of its number)
//     ("number", "+", "-", "*", "/" or "**", left, right, the register of the result)
// In them (register,) stands for what is in a register. The first registers have the gradients that are not None, the
// next ones the learning rates. Then the optimizer, and containers besides its own that the step follows from. Returns
// null with Python's error.
void *ms_ext_repeated_step(PyObject *parts, PyObject *gradients, PyObject *optimizer, PyObject *containers);

void ms_ext_free_repeated_step(void *step);

// Makes the step with these gradients: 1. If they are not like those that it was made for, or the optimizer's
// attributes, options other than learning rates, states or containers hold other objects, it does nothing: 0. -1 with
// Python's error.
int ms_ext_repeat_step(const void *step, PyObject *gradients);

// The step follows from what the containers hold now, which is equal to what they held.
bool ms_ext_look_at_step_again(void *step);

}  // extern "C"

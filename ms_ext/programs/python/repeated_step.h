// A step of an optimizer, made again call by call without Python's optimizer. bridge/optim/recording.py writes it down.
//
// Python calls these functions, with the GIL; they set its error where they fail.
#pragma once

#include <Python.h>

namespace ms_ext {

class RepeatedStep;

}  // namespace ms_ext

extern "C" {

// Args: the step's parts in order, each a tuple:
//     ("call", operator, overload, arguments in the order of the schema, the register of each result or None)
//     ("read", tensor, the register of its number)
//     ("number", "+", "-", "*", "/" or "**", left, right, the register of the result)
// In them (register,) stands for what is in a register. The first registers have the gradients, the next ones the
// learning rates. Returns null with Python's error.
ms_ext::RepeatedStep *ms_ext_repeated_step(PyObject *parts, PyObject *gradients);

void ms_ext_free_repeated_step(ms_ext::RepeatedStep *step);

// Makes the step with these gradients and learning rates: 1. If the gradients are not like those that it was made for
// it does nothing: 0. -1 with Python's error.
int ms_ext_repeat_step(const ms_ext::RepeatedStep *step, PyObject *gradients, PyObject *rates);

}  // extern "C"

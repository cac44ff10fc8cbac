// Defines the Python class InPool, and the kernel of programs on the CPU (program_kernel.cpp).
#pragma once

#include "pybind11/pybind11.h"

namespace py = pybind11;

void define_in_pool(py::module &module);

// Defines the Python class Module (module.cpp).
#pragma once

#include "pybind11/pybind11.h"

namespace py = pybind11;

void define_module(py::module &module);

// Defines the function places of Python's (places.cpp).
#pragma once

#include "pybind11/pybind11.h"

namespace py = pybind11;

void define_places(py::module &module);

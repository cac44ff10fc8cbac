// Defines the Python class GraphCall, and graph_location (graph_call.cpp).
#pragma once

#include "pybind11/pybind11.h"

namespace py = pybind11;

void define_graph_call(py::module &module);

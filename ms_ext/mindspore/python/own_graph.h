// A compiled graph all of whose kernels are the bridge's.
#pragma once

#include "pybind11/pybind11.h"

void define_own_graph(pybind11::module &module);

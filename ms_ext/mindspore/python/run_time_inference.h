// Infers the results of the bridge's operators where MindSpore has no Python primitive of them.
#pragma once

#include "pybind11/pybind11.h"

void define_run_time_inference(pybind11::module_ &module);

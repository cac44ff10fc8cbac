// A project of the usual kind: declarations here, one file for each operator, helpers in headers.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "numbers.h"

namespace project {

at::Tensor scale(const at::Tensor &x, double factor);
at::Tensor scale_backward(const at::Tensor &grad, double factor);

// In its own file, which gets a string from another.
at::Tensor by_name(const at::Tensor &x, const std::string &name);
double factor_of(const std::string &name);
std::string canonical(std::string name);

inline at::Tensor negated(const at::Tensor &x) { return x.neg(); }

}  // namespace project

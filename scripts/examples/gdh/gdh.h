// What gdh's files share.
#pragma once

#include <ATen/core/Tensor.h>

// Throws unless x is (n, c, ...), gamma (c, c) and beta (c), all of one floating dtype.
void check_gdh(const at::Tensor &x, const at::Tensor &gamma, const at::Tensor &beta);

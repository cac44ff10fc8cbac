// Element-wise operators of ATen on rows of float32, with the bits of PyTorch's kernels on a CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ms_ext {

// result[i] = of(a[i], b[i], c[i], number) for `count` numbers. Those that it does not take may be null.
using Rows = void (*)(float *result, const float *a, const float *b, const float *c, float number, int64_t count);

// An overload, as the arguments of its schema say.
struct ElementWise {
  Rows rows;
  size_t tensors;                // the first arguments
  std::optional<size_t> number;  // this argument
  std::optional<size_t> one;     // and this is 1
  std::optional<size_t> result;  // the argument that it writes to; none if it makes its result

  // None for other overloads, and where this processor or PyTorch's kernels on it have something of their own: it is
  // compared with them once. `second_is_number` is whether its second argument is a number in place of a tensor.
  static std::optional<ElementWise> find(const std::string &name, const std::string &overload, bool second_is_number);
};

}  // namespace ms_ext

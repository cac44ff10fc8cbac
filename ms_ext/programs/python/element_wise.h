// The calls of ATen that compute element by element.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace ms_ext {

// What such a call computes from the elements of its tensors and its number.
enum class Operation {
  kAdd,  // a + number * b
  kAddNumber,
  kMul,
  kMulNumber,
  kDiv,
  kDivNumber,
  kAddcmul,  // a + number * b * c
  kAddcdiv,  // a + number * b / c
  kLerp,     // a + number * (b - a)
  kSqrt,
  kNeg,
  kAbs,
  kMaximum,
};

// An overload, as the arguments of its schema say. Those of `_foreach_` take lists in place of tensors.
struct ElementWise {
  Operation operation;
  size_t tensors;                // the first arguments
  std::optional<size_t> number;  // this argument
  std::optional<size_t> one;     // and this is 1
  std::optional<size_t> result;  // the argument that it writes to; none if it makes its result

  // None for other overloads. `second_is_number` is whether its second argument is a number in place of a tensor.
  static std::optional<ElementWise> find(const std::string &name, const std::string &overload, bool second_is_number);
};

}  // namespace ms_ext

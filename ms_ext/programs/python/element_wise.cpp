#include "programs/python/element_wise.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ms_ext {
namespace {

struct Signature {
  std::string_view name, overload;
  bool second_is_number;
  Operation operation;
  size_t tensors;
  std::optional<size_t> number, one;
};

using enum Operation;

constexpr std::optional<size_t> kNone;

constexpr std::array kSignatures = {
    Signature{"add", "Tensor", false, kAdd, 2, 2, kNone},
    Signature{"add", "Tensor", true, kAddNumber, 1, 1, 2},
    Signature{"mul", "Tensor", false, kMul, 2, kNone, kNone},
    Signature{"mul", "Tensor", true, kMulNumber, 1, 1, kNone},
    Signature{"div", "Tensor", false, kDiv, 2, kNone, kNone},
    Signature{"div", "Tensor", true, kDivNumber, 1, 1, kNone},
    Signature{"addcmul", "", false, kAddcmul, 3, 3, kNone},
    Signature{"addcdiv", "", false, kAddcdiv, 3, 3, kNone},
    Signature{"lerp", "Scalar", false, kLerp, 2, 2, kNone},
    Signature{"sqrt", "", false, kSqrt, 1, kNone, kNone},
    Signature{"neg", "", false, kNeg, 1, kNone, kNone},
    Signature{"abs", "", false, kAbs, 1, kNone, kNone},
    Signature{"maximum", "", false, kMaximum, 2, kNone, kNone},
    Signature{"_foreach_add", "List", false, kAdd, 2, 2, kNone},
    Signature{"_foreach_add", "Scalar", true, kAddNumber, 1, 1, kNone},
    Signature{"_foreach_add", "ScalarList", true, kAddNumber, 1, 1, kNone},
    Signature{"_foreach_add", "Tensor", true, kAddNumber, 1, 1, 2},
    Signature{"_foreach_mul", "List", false, kMul, 2, kNone, kNone},
    Signature{"_foreach_mul", "Scalar", true, kMulNumber, 1, 1, kNone},
    Signature{"_foreach_mul", "ScalarList", true, kMulNumber, 1, 1, kNone},
    Signature{"_foreach_div", "List", false, kDiv, 2, kNone, kNone},
    Signature{"_foreach_div", "Scalar", true, kDivNumber, 1, 1, kNone},
    Signature{"_foreach_div", "ScalarList", true, kDivNumber, 1, 1, kNone},
    Signature{"_foreach_addcmul", "Scalar", false, kAddcmul, 3, 3, kNone},
    Signature{"_foreach_addcmul", "ScalarList", false, kAddcmul, 3, 3, kNone},
    Signature{"_foreach_addcdiv", "Scalar", false, kAddcdiv, 3, 3, kNone},
    Signature{"_foreach_addcdiv", "ScalarList", false, kAddcdiv, 3, 3, kNone},
    Signature{"_foreach_lerp", "Scalar", false, kLerp, 2, 2, kNone},
    Signature{"_foreach_sqrt", "", false, kSqrt, 1, kNone, kNone},
    Signature{"_foreach_neg", "", false, kNeg, 1, kNone, kNone},
    Signature{"_foreach_abs", "", false, kAbs, 1, kNone, kNone},
    Signature{"_foreach_maximum", "List", false, kMaximum, 2, kNone, kNone},
};

}  // namespace

std::optional<ElementWise> ElementWise::find(const std::string &name, const std::string &overload,
                                             bool second_is_number) {
  std::string_view base = name, own_overload = overload;
  if (base.substr(0, 6) != "aten::") return {};
  base.remove_prefix(6);
  const bool is_in_place = base.back() == '_', is_out = own_overload == "out" || own_overload == "Scalar_out";
  if (is_in_place) base.remove_suffix(1);
  const auto *const one = std::find_if(kSignatures.begin(), kSignatures.end(), [&](const Signature &signature) {
    const std::string_view out = signature.overload == "Scalar" ? "Scalar_out" : "out";
    return base == signature.name && own_overload == (is_out ? out : signature.overload) &&
           second_is_number == signature.second_is_number;
  });
  if (one == kSignatures.end()) return {};
  ElementWise found{one->operation, one->tensors, one->number, one->one, {}};
  if (is_in_place) found.result = 0;
  if (is_out) found.result = std::max({one->tensors, one->number.value_or(0) + 1, one->one.value_or(0) + 1});
  return found;
}

}  // namespace ms_ext

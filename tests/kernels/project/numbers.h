#pragma once

namespace project {

template <typename T>
constexpr T kHalf = T(1) / 2;

}  // namespace project

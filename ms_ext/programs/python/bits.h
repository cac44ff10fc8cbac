// Numbers on which two ways to compute something are compared, bit for bit.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace ms_ext::bits {

constexpr int64_t kSamples = 8003;  // which is no multiple of any row

// For operators that take a number, too.
constexpr std::array kNumbers = {1.0, 0.1, -0.3, 0.9, 0.5, 1e-8, -1e-3};

// Numbers of all sizes, and those that are none.
inline at::Tensor sample(unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> mantissa(-2, 2);
  std::uniform_int_distribution<int> exponent(-40, 40);
  at::Tensor numbers = at::empty({kSamples}, at::kFloat);
  auto *const at = numbers.mutable_data_ptr<float>();
  for (int64_t i = 0; i < kSamples; ++i) {
    at[i] = i % 2 == 0 ? mantissa(generator) : std::ldexp(mantissa(generator), exponent(generator));
  }
  using Limits = std::numeric_limits<float>;
  for (const float special : {0.0F, -0.0F, Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(),
                              Limits::denorm_min(), Limits::max(), Limits::lowest(), Limits::min()}) {
    for (int i = 0; i < 8; ++i) at[generator() % kSamples] = special;
  }
  return numbers;
}

// Of the host. What is no number equals whatever is none.
inline bool are_equal(const at::Tensor &left, const at::Tensor &right) {
  const auto *const a = left.const_data_ptr<float>();
  const auto *const b = right.const_data_ptr<float>();
  for (int64_t i = 0; i < left.numel(); ++i) {
    if (std::memcmp(a + i, b + i, sizeof(float)) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  }
  return true;
}

}  // namespace ms_ext::bits

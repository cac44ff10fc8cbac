#include "programs/python/rows.h"

#include <ATen/Functions.h>
#include <dlfcn.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <vector>

#include "programs/python/bits.h"

// Without the compiler's flag for it, for the library runs on other processors too.
#define MS_EXT_AVX2 __attribute__((target("avx2,fma")))

namespace ms_ext {
namespace {

using Eight = __m256;

// A product that GCC does not join with a sum, which would round once in place of twice.
MS_EXT_AVX2 inline Eight rounded(Eight product) {
  asm("" : "+x"(product));  // NOLINT
  return product;
}

struct Add {
  static constexpr int kTensors = 2;
  MS_EXT_AVX2 static Eight of(Eight a, Eight b, Eight, Eight alpha) { return _mm256_fmadd_ps(b, alpha, a); }
};

struct AddRounded {
  static constexpr int kTensors = 2;
  MS_EXT_AVX2 static Eight of(Eight a, Eight b, Eight, Eight alpha) {
    return _mm256_add_ps(a, rounded(_mm256_mul_ps(b, alpha)));
  }
};

struct AddNumber {
  static constexpr int kTensors = 1;
  MS_EXT_AVX2 static Eight of(Eight a, Eight, Eight, Eight number) { return _mm256_add_ps(a, number); }
};

struct Mul {
  static constexpr int kTensors = 2;
  MS_EXT_AVX2 static Eight of(Eight a, Eight b, Eight, Eight) { return _mm256_mul_ps(a, b); }
};

struct MulNumber {
  static constexpr int kTensors = 1;
  MS_EXT_AVX2 static Eight of(Eight a, Eight, Eight, Eight number) { return _mm256_mul_ps(a, number); }
};

struct Div {
  static constexpr int kTensors = 2;
  MS_EXT_AVX2 static Eight of(Eight a, Eight b, Eight, Eight) { return _mm256_div_ps(a, b); }
};

struct DivNumber {
  static constexpr int kTensors = 1;
  MS_EXT_AVX2 static Eight of(Eight a, Eight, Eight, Eight number) { return _mm256_div_ps(a, number); }
};

struct Addcmul {
  static constexpr int kTensors = 3;
  MS_EXT_AVX2 static Eight of(Eight a, Eight b, Eight c, Eight value) {
    return _mm256_fmadd_ps(rounded(_mm256_mul_ps(value, b)), c, a);
  }
};

struct AddcmulRounded {
  static constexpr int kTensors = 3;
  MS_EXT_AVX2 static Eight of(Eight a, Eight b, Eight c, Eight value) {
    return _mm256_add_ps(a, rounded(_mm256_mul_ps(_mm256_mul_ps(value, b), c)));
  }
};

struct Addcdiv {
  static constexpr int kTensors = 3;
  MS_EXT_AVX2 static Eight of(Eight a, Eight b, Eight c, Eight value) {
    return _mm256_add_ps(a, _mm256_div_ps(_mm256_mul_ps(value, b), c));
  }
};

// From the nearer end.
struct Lerp {
  static constexpr int kTensors = 2;
  MS_EXT_AVX2 static Eight of(Eight a, Eight b, Eight, Eight weight) {
    const Eight size = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), weight);
    const Eight is_small = _mm256_cmp_ps(size, _mm256_set1_ps(0.5F), _CMP_LT_OQ);
    const Eight factor = _mm256_blendv_ps(_mm256_sub_ps(weight, _mm256_set1_ps(1)), weight, is_small);
    return _mm256_fmadd_ps(factor, _mm256_sub_ps(b, a), _mm256_blendv_ps(b, a, is_small));
  }
};

struct Sqrt {
  static constexpr int kTensors = 1;
  MS_EXT_AVX2 static Eight of(Eight a, Eight, Eight, Eight) { return _mm256_sqrt_ps(a); }
};

// PyTorch takes MKL's where it has it, which does not round correctly. Its library names that function.
void square_roots_of_mkl(float *result, const float *a, const float *, const float *, float, int64_t count) {
  using Function = void (*)(int count, const float *a, float *result, int64_t mode);
  static const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "vmsSqrt"));
  constexpr int64_t kHighAccuracy = 0x2, kIgnoreErrors = 0x100, kKeepDenormals = 0x140000;
  if (function == nullptr) return;
  function(static_cast<int>(count), a, result, kHighAccuracy | kIgnoreErrors | kKeepDenormals);
}

// The steps of MKL's kernel for processors that are not Intel's. That takes four numbers at a time.
struct SqrtInSteps {
  static constexpr int kTensors = 1;
  MS_EXT_AVX2 static Eight of(Eight a, Eight, Eight, Eight) {
    const Eight half = _mm256_set1_ps(0.5F), estimate = _mm256_rsqrt_ps(a);
    const Eight root = rounded(_mm256_mul_ps(a, estimate)), inverse = rounded(_mm256_mul_ps(estimate, half));
    const Eight error = _mm256_sub_ps(half, rounded(_mm256_mul_ps(root, inverse)));
    const Eight better_root = _mm256_add_ps(rounded(_mm256_mul_ps(root, error)), root);
    const Eight better_inverse = _mm256_add_ps(rounded(_mm256_mul_ps(inverse, error)), inverse);
    const Eight left = _mm256_sub_ps(a, rounded(_mm256_mul_ps(better_root, better_root)));
    const Eight found = _mm256_add_ps(rounded(_mm256_mul_ps(left, better_inverse)), better_root);
    return is_for(a) ? found : with_others(a, found);
  }

 private:
  // Whether the steps are MKL's for all of these.
  MS_EXT_AVX2 static bool is_for(Eight a) {
    const Eight is_normal = _mm256_cmp_ps(a, _mm256_set1_ps(std::numeric_limits<float>::min()), _CMP_GE_OQ);
    const Eight is_below = _mm256_cmp_ps(a, _mm256_set1_ps(0x1.ffep+127F), _CMP_LT_OQ);
    return _mm256_movemask_ps(_mm256_and_ps(is_normal, is_below)) == 0xff;
  }

  MS_EXT_AVX2 static Eight with_others(Eight a, Eight found) {
    const Eight is_zero = _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_EQ_OQ);
    if (is_for(_mm256_blendv_ps(a, _mm256_set1_ps(1), is_zero))) return _mm256_blendv_ps(found, a, is_zero);
    std::array<float, 8> numbers{};
    _mm256_storeu_ps(numbers.data(), a);
    square_roots_of_mkl(numbers.data(), numbers.data(), nullptr, nullptr, 0, 8);
    return _mm256_loadu_ps(numbers.data());
  }
};

struct Neg {
  static constexpr int kTensors = 1;
  MS_EXT_AVX2 static Eight of(Eight a, Eight, Eight, Eight) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0F)); }
};

struct Abs {
  static constexpr int kTensors = 1;
  MS_EXT_AVX2 static Eight of(Eight a, Eight, Eight, Eight) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a); }
};

struct Maximum {
  static constexpr int kTensors = 2;
  MS_EXT_AVX2 static Eight of(Eight a, Eight b, Eight, Eight) {
    return _mm256_or_ps(_mm256_max_ps(a, b), _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
  }
};

template <typename Operation>
MS_EXT_AVX2 void rows(float *result, const float *a, const float *b, const float *c, float number, int64_t count) {
  const Eight numbers = _mm256_set1_ps(number);
  int64_t i = 0;
  Eight second = _mm256_setzero_ps(), third = second;
  for (; i + 8 <= count; i += 8) {
    if constexpr (Operation::kTensors > 1) second = _mm256_loadu_ps(b + i);
    if constexpr (Operation::kTensors > 2) third = _mm256_loadu_ps(c + i);
    _mm256_storeu_ps(result + i, Operation::of(_mm256_loadu_ps(a + i), second, third, numbers));
  }
  if (i == count) return;
  const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i left = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count - i)), places);
  if constexpr (Operation::kTensors > 1) second = _mm256_maskload_ps(b + i, left);
  if constexpr (Operation::kTensors > 2) third = _mm256_maskload_ps(c + i, left);
  _mm256_maskstore_ps(result + i, left, Operation::of(_mm256_maskload_ps(a + i, left), second, third, numbers));
}

using at::Tensor;

// What may have the bits of PyTorch's function, as its kernels are compiled for this processor.
struct Known {
  Operation operation;
  Tensor (*pytorchs)(const Tensor &a, const Tensor &b, const Tensor &c, double number);
  std::vector<Rows> candidates;
};

const std::vector<Known> &known() {
  using enum Operation;
  using T = const Tensor &;
  static const auto *const all = new std::vector<Known>{
      {kAdd, [](T a, T b, T, double n) { return at::add(a, b, n); }, {rows<Add>, rows<AddRounded>}},
      {kAddNumber, [](T a, T, T, double n) { return at::add(a, at::Scalar(n)); }, {rows<AddNumber>}},
      {kMul, [](T a, T b, T, double) { return at::mul(a, b); }, {rows<Mul>}},
      {kMulNumber, [](T a, T, T, double n) { return at::mul(a, at::Scalar(n)); }, {rows<MulNumber>}},
      {kDiv, [](T a, T b, T, double) { return at::div(a, b); }, {rows<Div>}},
      {kDivNumber, [](T a, T, T, double n) { return at::div(a, at::Scalar(n)); }, {rows<DivNumber>}},
      {kAddcmul,
       [](T a, T b, T c, double n) { return at::addcmul(a, b, c, n); },
       {rows<Addcmul>, rows<AddcmulRounded>}},
      {kAddcdiv, [](T a, T b, T c, double n) { return at::addcdiv(a, b, c, n); }, {rows<Addcdiv>}},
      {kLerp, [](T a, T b, T, double n) { return at::lerp(a, b, n); }, {rows<Lerp>}},
      {kSqrt, [](T a, T, T, double) { return at::sqrt(a); }, {rows<Sqrt>, rows<SqrtInSteps>, square_roots_of_mkl}},
      {kNeg, [](T a, T, T, double) { return at::neg(a); }, {rows<Neg>}},
      {kAbs, [](T a, T, T, double) { return at::abs(a); }, {rows<Abs>}},
      {kMaximum, [](T a, T b, T, double) { return at::maximum(a, b); }, {rows<Maximum>}},
  };
  return *all;
}

Rows with_pytorchs_bits(const Known &known) {
  const c10::InferenceMode no_recording;
  const Tensor a = bits::sample(1), b = bits::sample(2), c = bits::sample(3);
  for (const Rows rows : known.candidates) {
    const auto is_equal = [&](double number) {
      const Tensor result = at::zeros_like(a);
      rows(result.mutable_data_ptr<float>(), a.const_data_ptr<float>(), b.const_data_ptr<float>(),
           c.const_data_ptr<float>(), static_cast<float>(number), a.numel());
      return bits::are_equal(result, known.pytorchs(a, b, c, number));
    };
    if (std::all_of(bits::kNumbers.begin(), bits::kNumbers.end(), is_equal)) return rows;
  }
  return nullptr;
}

}  // namespace

Rows rows_of(Operation operation) {
  static const auto *const all = [] {
    auto *const found = new std::map<Operation, Rows>;
    const bool can = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    for (const Known &one : known()) found->emplace(one.operation, can ? with_pytorchs_bits(one) : nullptr);
    return found;
  }();
  return all->at(operation);
}

}  // namespace ms_ext

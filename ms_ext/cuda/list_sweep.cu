#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "cuda/device_code.h"
#include "programs/python/bits.h"
#include "programs/python/sweep.h"

namespace ms_ext {
namespace {

using at::Tensor;
using Expression = std::string;  // of CUDA's, of the numbers a, b, c and n

// An operation: PyTorch's functions for lists, and what may have the bits of their kernels. The compiler joins a
// product and a sum to one operation where it can, so here each is named.
struct Known {
  using Lists = at::TensorList;
  using Numbers = at::ArrayRef<at::Scalar>;

  Operation operation;
  std::vector<Expression> candidates;
  std::vector<Tensor> (*with_number)(Lists a, Lists b, Lists c, const at::Scalar &number);
  std::vector<Tensor> (*with_numbers)(Lists a, Lists b, Lists c, Numbers numbers) = nullptr;  // one for each item
};

const std::vector<Known> &known() {
  using enum Operation;
  using L = Known::Lists;
  using N = const at::Scalar &;
  using Ns = Known::Numbers;
  static const auto *const all = new std::vector<Known>{
      {kAdd,
       {"__fmaf_rn(n, b, a)", "__fadd_rn(a, __fmul_rn(n, b))"},
       [](L a, L b, L, N n) { return at::_foreach_add(a, b, n); }},
      {kAddNumber,
       {"__fadd_rn(a, n)"},
       [](L a, L, L, N n) { return at::_foreach_add(a, n); },
       [](L a, L, L, Ns n) { return at::_foreach_add(a, n); }},
      {kMul, {"__fmul_rn(a, b)"}, [](L a, L b, L, N) { return at::_foreach_mul(a, b); }},
      {kMulNumber,
       {"__fmul_rn(a, n)"},
       [](L a, L, L, N n) { return at::_foreach_mul(a, n); },
       [](L a, L, L, Ns n) { return at::_foreach_mul(a, n); }},
      {kDiv, {"__fdiv_rn(a, b)"}, [](L a, L b, L, N) { return at::_foreach_div(a, b); }},
      {kDivNumber,
       {"__fdiv_rn(a, n)"},
       [](L a, L, L, N n) { return at::_foreach_div(a, n); },
       [](L a, L, L, Ns n) { return at::_foreach_div(a, n); }},
      {kAddcmul,
       {"__fmaf_rn(n, __fmul_rn(b, c), a)", "__fmaf_rn(__fmul_rn(n, b), c, a)",
        "n == 1.0f ? __fmaf_rn(b, c, a) : __fmaf_rn(n, __fmul_rn(b, c), a)"},
       [](L a, L b, L c, N n) { return at::_foreach_addcmul(a, b, c, n); },
       [](L a, L b, L c, Ns n) { return at::_foreach_addcmul(a, b, c, n); }},
      {kAddcdiv,
       {"__fmaf_rn(n, __fdiv_rn(b, c), a)", "__fadd_rn(a, __fdiv_rn(__fmul_rn(n, b), c))"},
       [](L a, L b, L c, N n) { return at::_foreach_addcdiv(a, b, c, n); },
       [](L a, L b, L c, Ns n) { return at::_foreach_addcdiv(a, b, c, n); }},
      {kLerp,
       {"fabsf(n) < 0.5f ? __fmaf_rn(n, __fsub_rn(b, a), a) : __fmaf_rn(-__fsub_rn(b, a), __fsub_rn(1.0f, n), b)"},
       [](L a, L b, L, N n) { return at::_foreach_lerp(a, b, n); }},
      {kSqrt, {"__fsqrt_rn(a)"}, [](L a, L, L, N) { return at::_foreach_sqrt(a); }},
      {kNeg, {"-a"}, [](L a, L, L, N) { return at::_foreach_neg(a); }},
      {kAbs, {"fabsf(a)"}, [](L a, L, L, N) { return at::_foreach_abs(a); }},
      {kMaximum, {"a != a || a > b ? a : b"}, [](L a, L b, L, N) { return at::_foreach_maximum(a, b); }},
  };
  return *all;
}

// The items of one launch are a parameter of the kernel, which has no more than 4 KiB.
constexpr size_t kBytes = 4000;
constexpr int kThreads = 256;
constexpr int64_t kElements = 4096;  // of a block

// What depends on the calls stands before it as macros. A thread takes four neighbours at once where it can.
constexpr const char *kSource = R"cuda(
struct Item {
  float *lists[LISTS];
  long long count;
  unsigned first_block;
  float numbers[NUMBERS];
};

struct Items {
  Item items[ITEMS];
};

extern "C" __global__ void __launch_bounds__(THREADS) list_sweep(const __grid_constant__ Items items, int count) {
  int own = 0;
#pragma unroll
  for (int step = 128; step > 0; step /= 2) {
    if (own + step < count && items.items[own + step].first_block <= blockIdx.x) own += step;
  }
  const Item &item = items.items[own];
  OPEN
  long long begin = static_cast<long long>(blockIdx.x - item.first_block) * ELEMENTS;
  const long long end = begin + ELEMENTS < item.count ? begin + ELEMENTS : item.count;
  if ((ADDRESSES) % 16 == 0) {
    const long long whole = begin + (end - begin) / 4 * 4;
    for (long long i = begin + 4 * threadIdx.x; i < whole; i += 4 * THREADS) {
      float4 VALUES;
      LOAD(float4)
      CALLS(.x) CALLS(.y) CALLS(.z) CALLS(.w)
      STORE(float4)
    }
    begin = whole;
  }
  for (long long i = begin + threadIdx.x; i < end; i += THREADS) {
    float VALUES;
    LOAD(float)
    CALLS()
    STORE(float)
  }
}
)cuda";

class ListSweep final : public Sweep {
 public:
  // Args: the calls; for each an expression; the number of lists that a run is given.
  ListSweep(const std::vector<SweptCall> &calls, const std::vector<Expression> &expressions, size_t lists)
      : calls_(calls), lists_(lists), is_written_(lists) {
    for (const SweptCall &call : calls) {
      if (call.result < lists) is_written_[call.result] = true;
    }
    const size_t end = 8 * lists + sizeof(int64_t) + sizeof(unsigned) + sizeof(float) * calls.size();
    item_bytes_ = (end + 7) / 8 * 8;
    most_items_ = std::min<size_t>(kBytes / item_bytes_, 256);
    code_ = code_of(source(expressions));
  }

  void run(const TensorLists &lists, const std::vector<std::vector<float>> &numbers) override {
    TORCH_CHECK(try_run(lists, numbers), "NVRTC does not know this GPU");
  }

  // False if NVRTC does not know the GPU.
  bool try_run(const TensorLists &lists, const std::vector<std::vector<float>> &numbers) {
    const c10::cuda::CUDAGuard guard(lists[0][0].device());
    Items items{};
    size_t count = 0;
    int64_t blocks = 0;
    const auto launch = [&] {
      const bool launched = count == 0 || code_->launch(blocks, kThreads, items, static_cast<int>(count));
      count = 0;
      blocks = 0;
      return launched;
    };
    for (size_t i = 0; i < lists[0].size(); ++i) {
      const int64_t elements = lists[0][i].numel();
      if (elements == 0) continue;
      char *at = items.bytes.data() + count * item_bytes_;  // filled in the order of the kernel's Item
      const auto put = [&at](auto value) {
        std::memcpy(at, &value, sizeof(value));
        at += sizeof(value);
      };
      for (size_t j = 0; j < lists_; ++j) {
        put(is_written_[j] ? lists[j][i].mutable_data_ptr() : lists[j][i].const_data_ptr());
      }
      put(elements);
      put(static_cast<unsigned>(blocks));
      for (size_t j = 0; j < calls_.size(); ++j) put(numbers[j][calls_[j].has_numbers ? i : 0]);
      blocks += (elements + kElements - 1) / kElements;
      if (++count == most_items_ && !launch()) return false;
    }
    return launch();
  }

 private:
  struct alignas(8) Items {
    std::array<char, kBytes> bytes;
  };

  // Compiled once for all sweeps that are alike.
  static DeviceCode *code_of(const std::string &source) {
    static std::mutex mutex;
    static auto *const codes = new std::map<std::string, DeviceCode>;
    const std::lock_guard<std::mutex> lock(mutex);
    return &codes->try_emplace(source, "list_sweep", source).first->second;
  }

  std::string source(const std::vector<Expression> &expressions) const {
    const auto value = [this](size_t place) { return c10::str("x", place, place < lists_ ? " part" : ""); };
    std::vector<bool> is_known(lists_), is_loaded(lists_);
    size_t places = lists_;
    std::string open, addresses, values, load, store, made;
    for (size_t i = 0; i < calls_.size(); ++i) {
      open += c10::str("const float n", i, " = item.numbers[", i, "]; ");
      made += "{ ";
      for (size_t j = 0; j < calls_[i].tensors.size(); ++j) {
        const size_t place = calls_[i].tensors[j];
        made += c10::str("const float ", "abc"[j], " = ", value(place), "; ");
        if (place < lists_ && !is_known[place]) is_known[place] = is_loaded[place] = true;
      }
      const size_t result = calls_[i].result;
      if (result < lists_) is_known[result] = true;
      made += c10::str("const float n = n", i, "; ", value(result), " = ", expressions[i], "; } ");
      for (; places <= result; ++places) made.insert(0, c10::str("float x", places, "; "));
    }
    for (size_t i = 0; i < lists_; ++i) {
      open += c10::str("float *const l", i, " = item.lists[", i, "]; ");
      addresses += c10::str(i == 0 ? "" : " | ", "reinterpret_cast<unsigned long long>(l", i, ")");
      values += c10::str(i == 0 ? "" : ", ", "x", i);
      if (is_loaded[i]) load += c10::str("x", i, " = *reinterpret_cast<const type *>(l", i, " + i); ");
      if (is_written_[i]) store += c10::str("*reinterpret_cast<type *>(l", i, " + i) = x", i, "; ");
    }
    return c10::str("#define LISTS ", lists_, "\n#define NUMBERS ", calls_.size(), "\n#define ITEMS ", most_items_,
                    "\n#define THREADS ", kThreads, "\n#define ELEMENTS ", kElements, "\n#define OPEN ", open,
                    "\n#define ADDRESSES ", addresses, "\n#define VALUES ", values, "\n#define LOAD(type) ", load,
                    "\n#define STORE(type) ", store, "\n#define CALLS(part) { ", made, "}\n", kSource);
  }

  std::vector<SweptCall> calls_;
  size_t lists_, item_bytes_, most_items_;
  std::vector<bool> is_written_;
  DeviceCode *code_;
};

// Whether a kernel may point to its parameters.
bool has_constant_parameters(c10::Device device) {
  int major = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()));
  return major >= 7;
}

// Whether it has the bits of PyTorch's kernel, for sizes that are a multiple of four and others.
bool is_pytorchs(const Known &known, const Expression &expression, bool has_numbers, c10::Device device) {
  const auto sample = [device](unsigned seed) {
    const Tensor numbers = bits::sample(seed);
    return std::vector<Tensor>{numbers.to(device), numbers.narrow(0, 0, bits::kSamples / 4 * 4).to(device)};
  };
  const std::vector<Tensor> a = sample(1), b = sample(2), c = sample(3);
  ListSweep sweep({{known.operation, has_numbers, 3, {0, 1, 2}}}, {expression}, 4);
  for (const double number : bits::kNumbers) {
    const std::vector<Tensor> results{at::zeros_like(a[0]), at::zeros_like(a[1])};
    const std::vector<float> numbers(has_numbers ? results.size() : 1, static_cast<float>(number));
    if (!sweep.try_run({a, b, c, results}, {numbers})) return false;
    const std::vector<Tensor> expected =
        has_numbers ? known.with_numbers(a, b, c, {number, number}) : known.with_number(a, b, c, number);
    for (size_t i = 0; i < results.size(); ++i) {
      if (!bits::are_equal(results[i].cpu(), expected[i].cpu())) return false;
    }
  }
  return true;
}

// Empty if none has the bits of PyTorch's kernel: it is compared with them once on each GPU.
Expression expression_of(Operation operation, bool has_numbers, c10::Device device) {
  static std::mutex mutex;
  static auto *const found = new std::map<std::tuple<Operation, bool, c10::DeviceIndex>, Expression>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto key = std::make_tuple(operation, has_numbers, device.index());
  if (const auto known = found->find(key); known != found->end()) return known->second;
  const c10::InferenceMode no_recording;
  const auto is_it = [operation](const Known &known) { return known.operation == operation; };
  const Known &one = *std::find_if(known().begin(), known().end(), is_it);
  const auto is_equal = [&](const Expression &expression) { return is_pytorchs(one, expression, has_numbers, device); };
  const auto equal = has_constant_parameters(device)
                         ? std::find_if(one.candidates.begin(), one.candidates.end(), is_equal)
                         : one.candidates.end();
  return found->emplace(key, equal == one.candidates.end() ? "" : *equal).first->second;
}

c10::Device device_at(int gpu) { return {c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)}; }

}  // namespace
}  // namespace ms_ext

extern "C" {

bool ms_ext_can_sweep_lists(ms_ext::Operation operation, bool has_numbers, int gpu) {
  return !ms_ext::expression_of(operation, has_numbers, ms_ext::device_at(gpu)).empty();
}

ms_ext::Sweep *ms_ext_list_sweep(const std::vector<ms_ext::SweptCall> &calls, size_t lists, int gpu) {
  std::vector<ms_ext::Expression> expressions;
  for (const ms_ext::SweptCall &call : calls) {
    expressions.push_back(ms_ext::expression_of(call.operation, call.has_numbers, ms_ext::device_at(gpu)));
  }
  return new ms_ext::ListSweep(calls, expressions, lists);
}

}  // extern "C"

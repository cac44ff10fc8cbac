#include "programs/python/sweep.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIteratorInternal.h>

#include <algorithm>
#include <utility>

namespace ms_ext {

namespace {

constexpr int64_t kBlock = 2048;  // numbers: those of a handful of tensors stay in the nearest caches

bool is_plain(const at::Tensor &tensor, at::IntArrayRef sizes) {
  return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided &&
         tensor.sizes() == sizes && tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_inference();
}

bool are_apart(const at::Tensor &left, const at::Tensor &right) {
  const auto *const a = left.const_data_ptr<float>();
  const auto *const b = right.const_data_ptr<float>();
  return a == b || a + left.numel() <= b || b + right.numel() <= a;
}

}  // namespace

void Sweep::add(Call call) {
  const auto note = [&](size_t tensor) { own_ = std::max(own_, tensor < given_ ? 0 : tensor - given_ + 1); };
  std::for_each(call.tensors.begin(), call.tensors.end(), note);
  note(call.result);
  is_written_.resize(given_);
  if (call.result < given_) is_written_[call.result] = true;
  calls_.push_back(std::move(call));
}

bool Sweep::fits(const std::vector<at::Tensor> &tensors) const {
  const at::IntArrayRef sizes = tensors[0].sizes();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_plain(tensors[i], sizes)) return false;
    for (size_t j = 0; j < i; ++j) {
      if ((is_written_[i] || is_written_[j]) && !are_apart(tensors[i], tensors[j])) return false;
    }
  }
  return true;
}

bool Sweep::run(const std::vector<at::Tensor> &tensors, const std::vector<float> &numbers) const {
  if (!fits(tensors)) return false;
  Places given;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (is_written_[i]) tensors[i].unsafeGetTensorImpl()->bump_version();
    given.push_back(is_written_[i] ? tensors[i].mutable_data_ptr<float>()
                                   : const_cast<float *>(tensors[i].const_data_ptr<float>()));  // NOLINT
  }
  at::parallel_for(0, tensors[0].numel(), at::internal::GRAIN_SIZE,
                   [&](int64_t begin, int64_t end) { run(given, numbers, begin, end); });
  return true;
}

void Sweep::run(const Places &given, const std::vector<float> &numbers, int64_t begin, int64_t end) const {
  static thread_local std::vector<float> memory;
  memory.resize(std::max(memory.size(), own_ * kBlock));
  Places places(given_ + own_);
  for (size_t i = 0; i < own_; ++i) places[given_ + i] = memory.data() + i * kBlock;
  for (; begin < end; begin += kBlock) {
    for (size_t i = 0; i < given_; ++i) places[i] = given[i] + begin;
    const auto place = [&](const Call &call, size_t i) {
      return i < call.tensors.size() ? places[call.tensors[i]] : nullptr;
    };
    for (const Call &call : calls_) {
      call.rows(places[call.result], place(call, 0), place(call, 1), place(call, 2), numbers[call.number],
                std::min(kBlock, end - begin));
    }
  }
}

}  // namespace ms_ext

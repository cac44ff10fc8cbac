#include "programs/python/sweep.h"

#include <ATen/TensorIterator.h>

#include <algorithm>
#include <array>
#include <utility>

namespace ms_ext {

namespace {

constexpr int64_t kBlock = 4096;  // numbers: those of a handful of tensors stay in a core's own caches

// What a sweep makes for itself. Loads and stores that cross lines of the cache take longer, and so do those of blocks
// that lie a multiple of 4 KiB apart.
struct alignas(64) Block {
  std::array<float, kBlock + 32> numbers;
};

}  // namespace

void Sweep::add(Call call) {
  const auto note = [&](size_t tensor) { own_ = std::max(own_, tensor < given_ ? 0 : tensor - given_ + 1); };
  std::for_each(call.tensors.begin(), call.tensors.end(), note);
  note(call.result);
  is_written_.resize(given_);
  if (call.result < given_) is_written_[call.result] = true;
  calls_.push_back(std::move(call));
}

void Sweep::run(const std::vector<at::Tensor> &tensors, const std::vector<float> &numbers) const {
  Places given;
  for (size_t i = 0; i < tensors.size(); ++i) {
    given.push_back(is_written_[i] ? tensors[i].mutable_data_ptr<float>()
                                   : const_cast<float *>(tensors[i].const_data_ptr<float>()));  // NOLINT
  }
  const int64_t count = tensors[0].numel();
  if (count <= at::internal::GRAIN_SIZE) {
    run(given, numbers, 0, count);
    return;
  }
  // Its library has the threads: at::parallel_for, compiled here, would have none or others.
  at::TensorIterator elements = at::TensorIteratorConfig().add_const_input(tensors[0]).build();
  elements.for_each([&](char **data, const int64_t *, int64_t columns, int64_t rows) {
    const int64_t begin = reinterpret_cast<float *>(*data) - given[0];
    run(given, numbers, begin, begin + columns * rows);
  });
}

void Sweep::run(const Places &given, const std::vector<float> &numbers, int64_t begin, int64_t end) const {
  static thread_local std::vector<Block> blocks;
  blocks.resize(std::max(blocks.size(), own_));
  Places places(given_ + own_);
  for (size_t i = 0; i < own_; ++i) places[given_ + i] = blocks[i].numbers.data();
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

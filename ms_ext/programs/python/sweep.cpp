#include "programs/python/sweep.h"

#include <ATen/TensorIterator.h>

#include <algorithm>
#include <array>

#include "programs/python/rows.h"

namespace ms_ext {
namespace {

constexpr int64_t kBlock = 4096;  // numbers: those of a handful of tensors stay in a core's own caches

// What a sweep makes for itself. Loads and stores that cross lines of the cache take longer, and so do those of blocks
// that lie a multiple of 4 KiB apart.
struct alignas(64) Block {
  std::array<float, kBlock + 32> numbers;
};

class SweepOnCpu final : public Sweep {
 public:
  SweepOnCpu(const std::vector<SweptCall> &calls, size_t lists) : calls_(calls), given_(lists), is_written_(lists) {
    for (const SweptCall &call : calls) {
      rows_.push_back(rows_of(call.operation));
      if (call.result < lists) is_written_[call.result] = true;
      own_ = std::max(own_, call.result < lists ? 0 : call.result - lists + 1);
    }
  }

  void run(const TensorLists &lists, const std::vector<std::vector<float>> &numbers) override {
    Places given(given_);
    std::vector<float> own_numbers(numbers.size());
    for (size_t item = 0; item < lists[0].size(); ++item) {
      for (size_t i = 0; i < given_; ++i) {
        const at::Tensor &tensor = lists[i][item];
        given[i] = is_written_[i] ? tensor.mutable_data_ptr<float>()
                                  : const_cast<float *>(tensor.const_data_ptr<float>());  // NOLINT
      }
      for (size_t i = 0; i < numbers.size(); ++i) own_numbers[i] = numbers[i][calls_[i].has_numbers ? item : 0];
      run(lists[0][item], given, own_numbers);
    }
  }

 private:
  using Places = std::vector<float *>;

  // Args: one of the tensors.
  void run(const at::Tensor &tensor, const Places &given, const std::vector<float> &numbers) const {
    const int64_t count = tensor.numel();
    if (count <= at::internal::GRAIN_SIZE) {
      run(given, numbers, 0, count);
      return;
    }
    // Its library has the threads: at::parallel_for, compiled here, would have none or others.
    at::TensorIterator elements = at::TensorIteratorConfig().add_const_input(tensor).build();
    const auto *const first = tensor.const_data_ptr<float>();
    elements.for_each([&](char **data, const int64_t *, int64_t columns, int64_t rows) {
      const int64_t begin = reinterpret_cast<const float *>(*data) - first;
      run(given, numbers, begin, begin + columns * rows);
    });
  }

  void run(const Places &given, const std::vector<float> &numbers, int64_t begin, int64_t end) const {
    static thread_local std::vector<Block> blocks;
    blocks.resize(std::max(blocks.size(), own_));
    Places places(given_ + own_);
    for (size_t i = 0; i < own_; ++i) places[given_ + i] = blocks[i].numbers.data();
    for (; begin < end; begin += kBlock) {
      for (size_t i = 0; i < given_; ++i) places[i] = given[i] + begin;
      for (size_t i = 0; i < calls_.size(); ++i) {
        const std::vector<size_t> &tensors = calls_[i].tensors;
        const auto place = [&](size_t j) { return j < tensors.size() ? places[tensors[j]] : nullptr; };
        rows_[i](places[calls_[i].result], place(0), place(1), place(2), numbers[i], std::min(kBlock, end - begin));
      }
    }
  }

  std::vector<SweptCall> calls_;
  std::vector<Rows> rows_;
  size_t given_, own_ = 0;
  std::vector<bool> is_written_;
};

}  // namespace

std::unique_ptr<Sweep> sweep_on_cpu(const std::vector<SweptCall> &calls, size_t lists) {
  return std::make_unique<SweepOnCpu>(calls, lists);
}

}  // namespace ms_ext

// Element-wise calls on tensors of one size as one pass through memory: all of them on a block of the elements, while
// that is in the processor's cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "programs/python/rows.h"

namespace ms_ext {

class Sweep {
 public:
  // The first tensors are those that a run is given, the others live in the sweep only.
  struct Call {
    Rows rows;
    size_t result;
    std::vector<size_t> tensors;
    size_t number;  // of those that a run is given
  };

  // Args: the number of tensors that a run is given.
  explicit Sweep(size_t tensors = 0) : given_(tensors) {}

  void add(Call call);

  // Makes the calls. The tensors are of float32, lie in memory row by row, and none that is written overlaps another.
  void run(const std::vector<at::Tensor> &tensors, const std::vector<float> &numbers) const;

 private:
  using Places = std::vector<float *>;

  void run(const Places &given, const std::vector<float> &numbers, int64_t begin, int64_t end) const;

  size_t given_, own_ = 0;
  std::vector<bool> is_written_;
  std::vector<Call> calls_;
};

}  // namespace ms_ext

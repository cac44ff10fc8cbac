// On the CPU, a program's tensors lie in the memory that MindSpore's pool keeps for its own.
//
// A kernel of MindSpore's is given memory for all of its results before it runs, and has all of its inputs until it
// ends. A program has hundreds of both. So a result's memory is what PyTorch allocated for it, an input that nobody
// else needs is freed after its last use, and what is freed serves the next tensor of either framework.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "programs/pool_memory.h"

namespace ms_ext {

// While it lives, large tensors that this thread makes lie in the pool.
class Pool {
 public:
  explicit Pool(const PoolMemory &memory);
  ~Pool();
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  // The one of this thread; null if there is none.
  static const Pool *current();

  // Memory for a tensor. Empty if it is too small for the pool.
  c10::DataPtr allocate(size_t size) const;

  // Frees memory that `allocate` gave, on any thread. Whether it was that.
  static bool release(void *data);

  // An input, which frees its memory if nobody else needs that.
  at::Tensor input(size_t position, const at::Tensor &view) const;

  // Gives an output the memory of its result, or that of a copy.
  void give(size_t output, at::Tensor result) const;

 private:
  const PoolMemory &memory_;
  const Pool *const outer_;
};

// While it lives, nothing that this thread makes lies in the pool: what lasts as long as the process.
class OutsidePool {
 public:
  OutsidePool();
  ~OutsidePool();
  OutsidePool(const OutsidePool &) = delete;
  OutsidePool &operator=(const OutsidePool &) = delete;

 private:
  const Pool *const left_;
};

}  // namespace ms_ext

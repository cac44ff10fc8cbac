// The calls of an optimizer's step that are made in one pass through memory.
#pragma once

#include <vector>

#include "programs/python/step_parts.h"
#include "programs/python/sweep.h"

namespace ms_ext::repeated {

// A call that a sweep can make.
struct SweepableCall {
  Rows rows;
  std::vector<Operand> tensors;
  Operand number;
  Operand result;
  bool makes_result;  // and does not write to one that there is
  std::vector<int64_t> sizes;
};

class SweptCalls {
 public:
  // Args: the calls, which are parts of the step from `begin` on; the registers that the parts after them use.
  SweptCalls(const std::vector<SweepableCall> &calls, size_t begin, const Uses &later);

  size_t begin() const { return begin_; }
  size_t end() const { return end_; }

  // False if it has done nothing, because the tensors do not lie as when the step was written down.
  bool run(Registers *registers) const;

 private:
  size_t begin_, end_;
  std::vector<int64_t> sizes_;
  std::vector<Operand> given_;  // tensors
  std::vector<Operand> made_;   // those that it makes for later parts
  std::vector<Operand> numbers_;
  Sweep sweep_;
};

// Puts calls that can be swept next to each other, and before them what does not follow from them.
std::vector<SweptCalls> bring_together(std::vector<Part> *parts, const std::vector<Layout> &gradients);

}  // namespace ms_ext::repeated

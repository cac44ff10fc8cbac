// The calls of an optimizer's step that are made in one pass through memory.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "programs/python/element_wise.h"
#include "programs/python/step_parts.h"
#include "programs/python/sweep.h"

namespace ms_ext::repeated {

// Where the elements of a tensor are that a sweep can take: of float32, and each in a memory of its own. On a CPU they
// lie row by row.
class Elements {
 public:
  // None if a sweep cannot take it.
  static std::optional<Elements> of(const at::Tensor &tensor);

  bool are_those_of(const at::Tensor &tensor) const;
  c10::Device device() const { return device_; }
  int64_t count() const { return count_; }

  bool operator==(const Elements &other) const {
    return sizes_ == other.sizes_ && strides_ == other.strides_ && device_ == other.device_;
  }

 private:
  explicit Elements(const at::Tensor &tensor);

  std::vector<int64_t> sizes_, strides_;  // that of a dimension of one element says nothing, and is 1
  c10::Device device_;
  int64_t count_;
};

// A call that a sweep can make: of lists, or of tensors, which are lists of one.
struct SweepableCall {
  Operation operation;
  std::vector<Operands> tensors;
  bool has_numbers;  // one for each item of the lists, in place of one for all
  Operands numbers;
  Operands result;
  bool makes_result;  // and does not write to one that there is
  std::vector<Elements> items;
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
  bool find_tensors(const Registers &registers, TensorLists *lists) const;
  bool are_apart(const TensorLists &lists) const;
  bool find_numbers(const Registers &registers, std::vector<std::vector<float>> *numbers) const;

  size_t begin_, end_;
  std::vector<Elements> items_;
  std::vector<Operands> given_;                          // lists of tensors
  std::vector<Operands> made_;                           // those that it makes for later parts
  std::vector<std::pair<Operation, Operands>> numbers_;  // of each call
  std::vector<bool> is_written_;                         // of the lists
  std::shared_ptr<Sweep> sweep_;
  mutable std::vector<const void *> known_apart_;  // the memory that was found to be so last
};

// Puts calls that can be swept next to each other, and before them what does not follow from them.
std::vector<SweptCalls> bring_together(std::vector<Part> *parts, const std::vector<at::Tensor> &gradients);

}  // namespace ms_ext::repeated

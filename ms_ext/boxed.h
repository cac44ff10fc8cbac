// Boxed calls: an operator by its name, and its arguments, read from the text, on the dispatcher's stack.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "arguments.h"

namespace ms_ext {

// "ns::name" or "ns::name.overload". Throws if nobody has registered it.
c10::OperatorHandle find_operator(const std::string &name);

// One argument of a boxed call: a value, or the tensors that are filled in at launch, or the number in one of them.
struct Boxed {
  enum { kValue, kDevice, kTensor, kTensors, kOptionalTensors, kNumber } kind = kValue;
  c10::IValue value;
  std::vector<std::optional<Tensor>> tensors;
  bool is_wrapped = false;   // the number stands in a tensor's place
  bool is_optional = false;  // else None is the undefined tensor
  bool is_state = false;     // running statistics: the overload writes to them, and they have no gradient
  bool is_written = false;   // as the schema says: the operator gets a copy, which is a result

  // The argument as it stands on the stack, with `tensors` by their index. What the operator writes to is copied.
  c10::IValue fill(at::ArrayRef<at::Tensor> tensors, c10::Device device) const;

  // Of `kTensor` with an index: that one.
  const at::Tensor &tensor(at::ArrayRef<at::Tensor> of) const { return of[static_cast<size_t>(tensors[0]->index)]; }
};

// Whether the schema says that the operator writes to the argument, or returns one that it writes to.
bool is_written(const c10::Argument &argument);

// Reads an argument. Generators and devices are not in the text.
Boxed take_boxed(Arguments &args, const c10::Argument &argument);

}  // namespace ms_ext

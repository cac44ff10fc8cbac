// A call through PyTorch's dispatcher, which knows every operator that is registered and records for autograd.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

#include "arguments.h"

namespace ms_ext {

using Tensors = std::vector<at::Tensor>;

class BoxedCall {
 public:
  // Reads the overload's name.
  explicit BoxedCall(Arguments &args);
  // Reads the overload's own text.
  void take_arguments(Arguments &args);

  // The results on these inputs, which are the overload's tensors, and for arguments that name a device.
  Tensors operator()(at::ArrayRef<at::Tensor> inputs, c10::Device device) const;

  // Whether the input holds running statistics: the overload writes to them, and they have no gradient.
  bool is_state(size_t input) const;

 private:
  // One argument: a value, or the tensors that are filled in at launch.
  struct Argument {
    enum { kValue, kDevice, kTensor, kTensors, kOptionalTensors } kind = kValue;
    c10::IValue value;
    std::vector<std::optional<Tensor>> tensors;
    bool is_state = false;
  };

  static Argument take(Arguments &args, const c10::Argument &argument);
  static c10::IValue fill(const Argument &argument, at::ArrayRef<at::Tensor> inputs, c10::Device device);

  c10::OperatorHandle op_;
  std::vector<Argument> arguments_;
};

}  // namespace ms_ext

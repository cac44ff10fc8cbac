// An overload that is called through PyTorch's dispatcher, where autograd can record it.
#pragma once

#include <string>
#include <vector>

#include "boxed.h"

namespace ms_ext {

class Overload {
 public:
  // Args: its name, as in "add.Tensor"; its arguments.
  Overload(std::string name, Arguments &args);

  // What it writes to, and what it returns. Results that it leaves out are left out.
  std::vector<at::Tensor> operator()(at::ArrayRef<at::Tensor> inputs, c10::Device device) const;

  // Whether the input is a running statistic, which has no gradient.
  bool is_state(size_t input) const;

 private:
  c10::OperatorHandle op_;
  std::vector<Boxed> arguments_;
};

}  // namespace ms_ext

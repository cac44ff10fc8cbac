// A step of an optimizer in a graph, taken again without Python's frames.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <vector>

#include "programs/python/contents.h"

namespace ms_ext {

class RepeatedStep;

// Used with the GIL.
class __attribute__((visibility("hidden"))) RepeatedLaunch {
 public:
  // Args: a dictionary. bridge/optim/launched.py says what is in it.
  explicit RepeatedLaunch(const pybind11::dict &given);

  // Takes the step. If it may be another, it does nothing: false.
  bool run(void *const *addresses, size_t count) const;

 private:
  // A call that has to give what it gave before.
  struct Question {
    pybind11::object function;
    pybind11::tuple arguments;
    pybind11::object answer;
  };

  bool is_again(void *const *addresses, size_t count) const;

  std::vector<void *> addresses_;
  std::vector<std::pair<at::Tensor, const void *>> parameters_;  // and where their data is
  std::vector<Question> questions_;
  Contents contents_;
  const float *number_ = nullptr;  // on the host, or null
  float value_ = 0;                // of it
  pybind11::list gradients_;
  pybind11::object owner_;  // of the step
  const RepeatedStep *step_;
};

}  // namespace ms_ext

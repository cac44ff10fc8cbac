// A step of an optimizer in a graph, taken again without Python's frames.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <utility>
#include <vector>

#include "programs/python/contents.h"

namespace ms_ext {

class RepeatedStep;

// Used with the GIL.
class __attribute__((visibility("hidden"))) RepeatedLaunch {
 public:
  // Args: a dictionary with
  //     "addresses": of the launch's tensors, in their order; None where a tensor may be anywhere
  //     "gradients": what RepeatedStep::again takes, and "positions": of their addresses among those, None without one
  //     "zeros": tuples of such a position and how many bytes there are zero, on the host
  //     "parameters": PyTorch's, which have to stay where they are
  //     "containers": which have to hold the same objects
  //     "questions": tuples of a function, its arguments, and the answer that it has to give
  //     "rate": the address of a float on the host, which has to have the same value. One of the questions is where
  //         the rate is now
  //     "step": the address of the step, and "owner": of the step, which lives as long
  explicit RepeatedLaunch(const pybind11::dict &given);

  // Takes the step. If it may be another, it does nothing: false.
  bool run(void *const *addresses, size_t count) const;

 private:
  struct Question {
    pybind11::object function;
    pybind11::tuple arguments;
    pybind11::object answer;
  };

  bool is_again(void *const *addresses, size_t count) const;

  std::vector<void *> addresses_;  // null where any will do
  std::vector<std::pair<size_t, size_t>> zeros_;
  std::vector<std::pair<at::Tensor, const void *>> parameters_;  // and where their data is
  std::vector<Question> questions_;
  Contents contents_;
  const float *rate_;
  float value_;                                // of the rate
  mutable std::vector<at::Tensor> gradients_;  // where they were last; undefined where a parameter has none
  std::vector<size_t> positions_;              // of their addresses
  pybind11::object owner_;
  const RepeatedStep *step_;
};

}  // namespace ms_ext

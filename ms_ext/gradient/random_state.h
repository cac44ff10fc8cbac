// The state in which a draw found its device's default generator, for the gradient to draw the same again.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace ms_ext {

// Saves the state for the holder of `place`, an output of the drawing kernel that its gradient gets as an input.
//
// On CPU, `place` holds the state. A state in CUDA memory would have to be waited for, so there the host keeps it, by
// the address of `place`, which is no other tensor's as long as a gradient may ask.
void save_random_state(const at::Tensor &place);

// Draws from the saved state while it lives; then the generator is as it was.
class Redraw {
 public:
  explicit Redraw(const at::Tensor &place);
  ~Redraw();
  Redraw(const Redraw &) = delete;
  Redraw &operator=(const Redraw &) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;
};

}  // namespace ms_ext

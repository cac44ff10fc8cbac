// Lets ATen allocate its results right in MindSpore's memory.
//
// An ATen function without an out= variant allocates its result, which would have to be copied to where MindSpore wants
// it. While a Donation lives, an allocation on this thread of just an output's size gets that output's memory. Which of
// the function's tensors lands there is a guess that is nearly always right; Call::store looks, and copies what is not
// in its place.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace ms_ext {

class Donation {
 public:
  // Offers the memory of these tensors.
  explicit Donation(at::ArrayRef<at::Tensor> outputs);
  ~Donation();
  Donation(const Donation &) = delete;
  Donation &operator=(const Donation &) = delete;

  // Withdraws what nobody took, so that later allocations get memory of their own.
  void withdraw();
};

// For an allocator: memory that this thread offers for an allocation of just this size, or null. It is not to be freed.
void *take_offer(size_t size, c10::DeviceType device);

}  // namespace ms_ext

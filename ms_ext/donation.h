// Lets ATen allocate its results right in MindSpore's memory.
//
// An ATen function without an out= variant allocates its result, which would have to be copied to where MindSpore wants
// it. While a Donation lives, one allocation on this thread of just an output's size gets that output's memory. Which
// one is a guess: at first the first, and where that turned out to be something else, the one that gave the result at
// the last launch. Call::store looks, and copies what is not in its place.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>

#include <mutex>
#include <vector>

namespace ms_ext {

// For each output of a kernel, which allocation of its size is to get its memory, counted from 0. Kernels are launched
// by several threads.
class Turns {
 public:
  using List = c10::SmallVector<size_t, 4>;

  // Of so many outputs; empty if nothing is known of them.
  List get(size_t outputs) const;
  void set(List turns);

 private:
  mutable std::mutex mutex_;
  List turns_;
};

class Donation {
 public:
  // Offers the memory of these tensors.
  Donation(at::ArrayRef<at::Tensor> outputs, Turns &turns);
  ~Donation();
  Donation(const Donation &) = delete;
  Donation &operator=(const Donation &) = delete;

  // Withdraws what nobody took, so that later allocations get memory of their own, and learns where the outputs'
  // results came from.
  void end(at::ArrayRef<at::Tensor> results);

 private:
  Turns &turns_;
  Turns::List guess_;
};

// Has PyTorch's CPU allocator take what is offered, and the memory of a program's pool, from now on.
void use_offers_on_cpu();

// For an allocator: memory that this thread offers for an allocation of just this size, or null. It is not to be freed.
void *take_offer(size_t size, c10::DeviceType device);

// For an allocator: what it allocated because there was no offer.
void note_allocation(size_t size, c10::DeviceType device, void *data);

}  // namespace ms_ext

// c10::Allocator has one function that allocates. PyTorch's CUDA allocator has some fifty more, which differ between
// its releases, so none can be wrapped around it: that one function is replaced instead.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "cuda/allocator.h"
#include "cuda/virtual_table.h"
#include "donation.h"

namespace ms_ext {
namespace {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;
using Allocate = c10::DataPtr (*)(c10::Allocator *self, size_t size);

static_assert(std::is_base_of_v<c10::Allocator, CUDAAllocator>);
static_assert(std::is_same_v<decltype(&c10::Allocator::allocate), c10::DataPtr (c10::Allocator::*)(size_t)>);

Allocate original = nullptr;

c10::DataPtr allocate(c10::Allocator *self, size_t size) {
  void *data = take_offer(size, c10::kCUDA);
  if (data != nullptr) return {data, data, [](void *) {}, {c10::kCUDA, c10::cuda::current_device()}};
  c10::DataPtr own = original(self, size);
  note_allocation(size, c10::kCUDA, own.get());
  return own;
}

}  // namespace

void accept_offers() {
  static const bool accepted = [] {
    CUDAAllocator *allocator = c10::cuda::CUDACachingAllocator::get();
    replace_virtual_function(allocator, slot_of(&c10::Allocator::allocate), &allocate, original);
    return true;
  }();
  static_cast<void>(accepted);
}

}  // namespace ms_ext

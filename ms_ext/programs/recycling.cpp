#include "programs/recycling.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ms_ext {
namespace {

// The C library keeps smaller pieces itself, and faster.
constexpr size_t kSmallest = 65536;

// A program that needs less than this may keep this much.
constexpr size_t kAlwaysKept = 8 << 20;

thread_local Recycling *recycling = nullptr;

}  // namespace

Recycling::Recycling() : most_used_(kAlwaysKept), outer_(std::exchange(recycling, this)) {}

Recycling::~Recycling() { recycling = outer_; }

Recycling *Recycling::current() { return recycling; }

void Recycling::use(void *data, size_t size) {
  used_[data] = size;
  used_bytes_ += size;
  most_used_ = std::max(most_used_, used_bytes_);
}

void Recycling::forget(void *data) {
  const auto found = used_.find(data);
  if (found == used_.end()) return;
  used_bytes_ -= found->second;
  used_.erase(found);
}

void *Recycling::take(size_t size) {
  // The newest first: it may be in the processor's cache.
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(), [size](const Block &block) {
    return block.size >= size && block.size - size <= size / 8;
  });
  if (found == kept_.rend()) return nullptr;
  void *const data = found->memory.release_context();
  kept_bytes_ -= found->size;
  use(data, found->size);
  kept_.erase(std::next(found).base());
  return data;
}

// Gives back so much that all together stays what tensors needed at most.
void Recycling::make_room(size_t size) {
  for (; !kept_.empty() && used_bytes_ + kept_bytes_ + size > most_used_; kept_.pop_front()) {
    kept_bytes_ -= kept_.front().size;
  }
}

c10::DataPtr Recycling::allocate(size_t size, c10::Allocator &base, c10::DeleterFnPtr release) {
  const bool is_large = size >= kSmallest && base.raw_deleter() != nullptr;
  void *data = is_large ? take(size) : nullptr;
  if (data == nullptr) {
    if (is_large) make_room(size);
    c10::DataPtr fresh = base.allocate(size);
    forget(fresh.get());  // another thread has freed what lay there
    if (!is_large) return fresh;
    free_ = base.raw_deleter();
    data = fresh.release_context();
    use(data, size);
  }
  return {data, data, release, c10::Device(c10::kCPU)};
}

bool Recycling::keep(void *data) {
  const auto found = used_.find(data);
  if (found == used_.end()) return false;
  const size_t size = found->second;
  forget(data);
  kept_.push_back({c10::DataPtr(data, data, free_, c10::Device(c10::kCPU)), size});
  kept_bytes_ += size;
  return true;
}

}  // namespace ms_ext

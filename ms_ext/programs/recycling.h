// While a program runs on the CPU, the memory of a tensor that it frees serves the next one of about that size.
//
// The C library would split such memory up: its aligned allocations ask for more than they keep, so that a tensor does
// not fit where one of the same size lay. A program that frees each tensor after its last use would grow all the same.
#pragma once

#include <c10/core/Allocator.h>

#include <deque>
#include <unordered_map>

namespace ms_ext {

// Keeps what this thread frees, until it ends.
class Recycling {
 public:
  Recycling();
  ~Recycling();
  Recycling(const Recycling &) = delete;
  Recycling &operator=(const Recycling &) = delete;

  // The one of this thread; null if there is none.
  static Recycling *current();

  // Memory for a tensor: what is kept, or else new memory of `base`.
  c10::DataPtr allocate(size_t size, c10::Allocator &base, c10::DeleterFnPtr release);

  // Keeps memory that `allocate` gave. Whether it did.
  bool keep(void *data);

 private:
  struct Block {
    c10::DataPtr memory;
    size_t size;
  };

  void *take(size_t size);
  void make_room(size_t size);
  void use(void *data, size_t size);
  void forget(void *data);

  std::unordered_map<void *, size_t> used_;  // the sizes of what tensors have
  std::deque<Block> kept_;                   // the oldest first
  size_t used_bytes_ = 0;
  size_t kept_bytes_ = 0;
  size_t most_used_;
  c10::DeleterFnPtr free_ = nullptr;
  Recycling *const outer_;
};

}  // namespace ms_ext

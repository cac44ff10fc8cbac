// Replaces one virtual function of an object that others made.
//
// The Itanium C++ ABI, which g++ and clang follow on x86-64: an object begins with the address of its class's table of
// virtual functions; a base's functions come first in it, in the order of their declaration, then those that the class
// adds; and a pointer to a virtual member function holds one more than the function's offset in the table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#if !defined(__x86_64__) || !defined(__GXX_ABI_VERSION)
#error "ms_ext/cuda/virtual_table.h knows the tables of virtual functions of g++ and clang on x86-64 only"
#endif

namespace ms_ext {

// The place of a virtual function in the table.
template <typename Member>
size_t slot_of(Member member) {
  static_assert(std::is_member_function_pointer_v<Member> && sizeof(Member) == 2 * sizeof(void *));
  size_t offset = 0;
  std::memcpy(&offset, &member, sizeof offset);
  return (offset - 1) / sizeof(void *);
}

// How many virtual functions an interface has: the place of the one that comes next.
template <typename Interface>
size_t count_virtual_functions() {
  static_assert(std::is_polymorphic_v<Interface>);
  struct Longer : Interface {
    virtual void next() = 0;
  };
  return slot_of(&Longer::next);
}

// Gives `object` a copy of its table with another function at `slot`; `original` becomes the one that was there.
//
// The copy has the functions that the interface has when this is compiled, and not those that the object's class may
// add to them: nobody but that class could call these. tests/test_cuda_allocator.py looks that PyTorch's adds none.
template <typename Interface, typename Function>
void replace_virtual_function(Interface *object, size_t slot, Function replacement, Function &original) {
  constexpr size_t kBefore = 2;  // in front of the functions stand the offset to the whole object, and its type
  const size_t size = kBefore + count_virtual_functions<Interface>();
  void **&functions = *reinterpret_cast<void ***>(object);
  auto *table = new void *[size];  // the object may be used as long as the process lives
  std::copy_n(functions - kBefore, size, table);
  void *&function = table[kBefore + slot];
  original = reinterpret_cast<Function>(function);
  function = reinterpret_cast<void *>(replacement);
  functions = table + kBefore;  // from here on other threads may call it
}

}  // namespace ms_ext

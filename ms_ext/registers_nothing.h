// Included before a source whose operators are registered already, by a library that the process has loaded: what
// bridge/kernels/objects.py compiles such a source for is its functions.
#pragma once

#include <ATen/core/op_registration/op_registration.h>
#include <torch/library.h>

#include <string>

namespace c10 {

// Takes what torch::RegisterOperators takes.
struct RegistersNothing {
  RegistersNothing() = default;
  template <typename... T>
  explicit RegistersNothing(const std::string &, T &&...) {}
  template <typename... T>
  RegistersNothing op(T &&...) {
    return RegistersNothing();
  }
  static auto options() { return RegisterOperators::options(); }
};

}  // namespace c10

namespace torch {
using c10::RegistersNothing;
}  // namespace torch

#define RegisterOperators RegistersNothing
#define MS_EXT_UNCALLED_(id, m) [[maybe_unused]] static void C10_CONCATENATE(ms_ext_uncalled_, id)(torch::Library & m)
#undef TORCH_LIBRARY
#define TORCH_LIBRARY(ns, m) MS_EXT_UNCALLED_(__COUNTER__, m)
#undef TORCH_LIBRARY_FRAGMENT
#define TORCH_LIBRARY_FRAGMENT(ns, m) MS_EXT_UNCALLED_(__COUNTER__, m)
#undef TORCH_LIBRARY_IMPL
#define TORCH_LIBRARY_IMPL(ns, k, m) MS_EXT_UNCALLED_(__COUNTER__, m)

// What bridge.kernels.aot puts around a plain MindSpore AOT function. It needs neither PyTorch's nor MindSpore's
// headers.
//
//   extern "C" int CustomAdd(int, void **, int *, int64_t **, const char **, void *, void *);
//   // CustomAdd(Tensor a, Tensor b) -> Tensor
//   MS_EXT_AOT(CustomAdd, ms_ext::Shape, ms_ext::kHost, 2, 0, ms_ext::kUninitialised)
#pragma once

#include <cstddef>
#include <vector>

#include "infer.h"
#include "prebuilt.h"

namespace ms_ext {

using AotFunction = int(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                        void *extra);

// What an output holds when the function starts: nothing in particular, zeros, or a copy of the input at a position.
enum Initial : int { kUninitialised = -2, kZeros = -1 };

// How to fill the memory that the function works on, in the order of the stream.
struct Memory {
  bool on_host;
  void (*zero)(void *to, size_t bytes, void *stream);
  void (*copy)(void *to, const void *from, size_t bytes, void *stream);
};
extern const Memory kHost;

// A function as the bridge runs it. The last `hidden` of the kernel's inputs only lend the outputs their shapes: the
// function does not get them.
struct Aot {
  AotFunction *function;
  const Memory &memory;
  size_t inputs;
  size_t hidden;
  std::vector<int> initial;
};

// Fills the outputs as declared and runs the function. Throws std::runtime_error if it does not return 0.
int launch_aot(const Aot &aot, int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
               void *stream, void *extra);

}  // namespace ms_ext

// The function's own Init is called if there is one, and keeps the kernel data to itself.
#define MS_EXT_AOT(op, result, memory, inputs, hidden, ...)                                                            \
  extern "C" __attribute__((weak)) int op##Init(int *, int64_t **, const char **, void *);                             \
  extern "C" int aten_##op##Init(int *ndims, int64_t **shapes, const char **dtypes, void *extra) {                     \
    return op##Init == nullptr ? 0 : op##Init(ndims, shapes, dtypes, extra);                                           \
  }                                                                                                                    \
  extern "C" int aten_##op(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream, \
                           void *extra) {                                                                              \
    static const ms_ext::Aot aot{op, memory, inputs, hidden, {__VA_ARGS__}};                                           \
    return ms_ext::launch_aot(aot, nparam, params, ndims, shapes, dtypes, stream, extra);                              \
  }                                                                                                                    \
  extern "C" result aten_##op##InferShape(int *ndims, int64_t **shapes, void *extra) {                                 \
    return ms_ext::infer<result>(ndims, shapes, extra);                                                                \
  }

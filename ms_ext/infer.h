// How MindSpore asks a kernel for the shapes of its results.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

namespace ms_ext {

// The result of MindSpore's InferShape: of one tensor, or of a tuple.
using Shape = std::vector<int64_t>;
using Shapes = std::vector<std::vector<int64_t>>;

// Graph mode infers shapes in C++: at compile time and, for unknown dimensions (-1), again at run time. This asks
// bridge/infer/meta.py, which has the one inference.
Shapes infer_shapes(int *ndims, int64_t **shapes, void *extra);

template <typename Result>
Result infer(int *ndims, int64_t **shapes, void *extra) {
  Shapes inferred = infer_shapes(ndims, shapes, extra);
  if constexpr (std::is_same_v<Result, Shapes>) {
    return inferred;
  } else {
    return inferred.at(0);
  }
}

}  // namespace ms_ext

// The schema that a kernel was built for, by which bridge.kernels knows a library that was built before.
#define MS_EXT_SCHEMA(op, text) \
  extern "C" const char *aten_##op##Schema() { return text; }

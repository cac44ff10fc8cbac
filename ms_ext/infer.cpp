#include "infer.h"

#include <atomic>
#include <stdexcept>
#include <string>

#include "shim.h"

namespace ms_ext {
namespace {

// The inference in bridge/primitive/graph_shapes.py. It reports each output with ms_ext_add_shape, or an error with
// ms_ext_set_error.
using Infer = void (*)(const char *op, const char *args, const char *device, const char *dtypes, const int *ndims,
                       int64_t **shapes, void *inferred);
std::atomic<Infer> infer_in_python = nullptr;

struct Inferred {
  Shapes shapes;
  std::string error;
};

}  // namespace

Shapes infer_shapes(int *ndims, int64_t **shapes, void *extra) {
  const Infer infer = infer_in_python.load();
  if (infer == nullptr) {
    throw std::runtime_error(label(extra) + ": `import bridge` has to come before a graph that calls it is loaded");
  }
  Inferred inferred;
  infer(read_attribute(extra, "aten_op").c_str(), read_attribute(extra, "aten_args").c_str(),
        read_attribute(extra, "aten_device").c_str(), read_attribute(extra, "aten_dtypes").c_str(), ndims, shapes,
        &inferred);
  if (!inferred.error.empty()) throw std::runtime_error(inferred.error);
  return inferred.shapes;
}

}  // namespace ms_ext

extern "C" {

void ms_ext_set_infer(ms_ext::Infer infer) { ms_ext::infer_in_python = infer; }

void ms_ext_add_shape(void *inferred, int ndim, const int64_t *shape) {
  static_cast<ms_ext::Inferred *>(inferred)->shapes.emplace_back(shape, shape + ndim);
}

void ms_ext_set_error(void *inferred, const char *message) {
  static_cast<ms_ext::Inferred *>(inferred)->error = message;
}

}  // extern "C"

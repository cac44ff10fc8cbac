#include "infer.h"

#include <dlfcn.h>

#include <atomic>
#include <stdexcept>
#include <string>

#include "errors.h"
#include "mindspore/launch_error.h"
#include "programs/leaves_no_python.h"
#include "shim.h"

namespace ms_ext {
namespace {

// The inference in bridge/primitive/graph_shapes.py. It reports each output with ms_ext_add_shape, or an error with
// ms_ext_set_error.
using Infer = void (*)(const char *op, const char *args, const char *device, const char *dtypes, const int *ndims,
                       int64_t **shapes, void *inferred);
std::atomic<Infer> infer_in_python = nullptr;

// The first call of the process may come from a graph that was loaded, which calls no Python: bridge/_start.py has to
// run then too, if the program has imported the package.
void start_in_python() {
  using Ensure = int (*)();
  using Run = int (*)(const char *, void *);
  using Release = void (*)(int);
  const auto ensure = reinterpret_cast<Ensure>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
  const auto run = reinterpret_cast<Run>(dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags"));
  const auto release = reinterpret_cast<Release>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
  if (ensure == nullptr || run == nullptr || release == nullptr) return;
  const int state = ensure();
  run("import sys\nif 'bridge' in sys.modules:\n    from bridge._start import start\n    start()\n", nullptr);
  release(state);
}

struct Inferred {
  Shapes shapes;
  std::string error;
};

}  // namespace

Shapes infer_shapes(int *ndims, int64_t **shapes, void *extra) {
  if (infer_in_python.load() == nullptr) start_in_python();
  const Infer infer = infer_in_python.load();
  if (infer == nullptr) {
    throw std::runtime_error(label(extra) + ": `import bridge` has to come before a graph that calls it is loaded");
  }
  const LeavesNoPython leaves_no_python;
  Inferred inferred;
  infer(read_attribute(extra, "aten_op").c_str(), read_attribute(extra, "aten_args").c_str(),
        read_attribute(extra, "aten_device").c_str(), read_attribute(extra, "aten_dtypes").c_str(), ndims, shapes,
        &inferred);
  if (!inferred.error.empty()) {
    ms_ext_note_failed_launch();  // on a GPU, a thread of MindSpore's infers while a graph runs
    throw_as_in_python(error_of(inferred.error));
  }
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

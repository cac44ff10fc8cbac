// A call of Python in a graph, as a kernel: bridge/optim/host_call.py is told where the tensors are. It runs on the
// thread and stream of the launch.
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "errors.h"
#include "programs/leaves_no_python.h"
#include "shim.h"

namespace ms_ext {
namespace {

// ms_ext_call_host in programs/python/host_calls.h.
using HostCall = char *(*)(int64_t number, void *const *addresses, size_t count);
std::atomic<HostCall> call_host = nullptr;

class host_call_shim {
 public:
  static constexpr bool kUsesAutograd = true;  // Python decides what is recorded

  explicit host_call_shim(Arguments &args) {
    int64_t inputs = 0;
    args >> number_ >> inputs;
    args.expect_more_inputs(static_cast<int>(inputs));
  }

  void operator()(Call &c) const {
    std::vector<void *> addresses;
    for (const at::Tensor &tensor : c.inputs()) {
      addresses.push_back(tensor.numel() == 0 ? nullptr : tensor.data_ptr());
    }
    const LeavesNoPython leaves_no_python;
    const std::unique_ptr<char, decltype(&std::free)> error(
        call_host.load()(number_, addresses.data(), addresses.size()), &std::free);
    if (error != nullptr) throw error_of(error.get());
    c.out(0).fill_(true);
  }

 private:
  int64_t number_ = 0;
};

}  // namespace
}  // namespace ms_ext

#ifdef MS_EXT_CUDA
constexpr auto launch_host_call = ms_ext::launch_cuda;
#else
constexpr auto launch_host_call = ms_ext::launch_cpu;
#endif

extern "C" {

void ms_ext_set_host_call(ms_ext::HostCall call) { ms_ext::call_host = call; }

int aten_host_callInit(int *, int64_t **, const char **, void *extra) {
  return ms_ext::init(extra, ms_ext::make_kernel<ms_ext::host_call_shim>);
}

int aten_host_call(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                   void *extra) {
  return launch_host_call(nparam, params, ndims, shapes, dtypes, stream, extra);
}

ms_ext::Shapes aten_host_callInferShape(int *, int64_t **, void *) { return {{}}; }

// MindSpore's number for bool, which Python knows.
std::vector<int> aten_host_callInferType(std::vector<int>, void *extra) {
  std::istringstream types(ms_ext::read_attribute(extra, "aten_types"));
  return {std::istream_iterator<int>(types), std::istream_iterator<int>()};
}

}  // extern "C"

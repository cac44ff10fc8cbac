// Launches on the CPU, as cuda/launch.cu on a GPU.
#include <unistd.h>

#include "as_in_pytorch.h"
#include "shim.h"

// OpenMP's, where PyTorch's version of it has it.
extern "C" int omp_pause_resource_all(int kind) __attribute__((weak));

namespace ms_ext {
namespace {

// MindSpore takes a graph's first step on a thread of its own and, if the graph is small, the later ones on the
// caller's. The team of threads that OpenMP made for the first would stay, and with more threads than cores OpenMP puts
// a team to sleep after each loop: 0.1 ms for a small operator. So only the main thread keeps its team after this.
void end_team() {
  constexpr int kSoft = 1;  // omp_pause_soft
  if (omp_pause_resource_all != nullptr && gettid() != getpid()) omp_pause_resource_all(kSoft);
}

}  // namespace

int launch_cpu(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *, void *extra) {
  const AsInPyTorch as_in_pytorch;
  launch(c10::kCPU, nparam, params, ndims, shapes, dtypes, extra);
  std::call_once(static_cast<const Kernel &>(*ms_ext_kernel_data(extra)).first_launch, end_team);
  return 0;
}

}  // namespace ms_ext

// For a kernel whose results have no memory yet: runs it on the inputs, and passes each result to `take` with `to`, in
// order (mindspore/python/data_dependent.cpp).
extern "C" void ms_ext_evaluate(int ninputs, void **params, int *ndims, int64_t **shapes, const char **dtypes,
                                void *extra,
                                void (*take)(void *to, int ndim, const int64_t *shape, const void *data, size_t bytes),
                                void *to) {
  const ms_ext::AsInPyTorch as_in_pytorch;
  ms_ext::on_views(
      c10::kCPU, ninputs, params, ndims, shapes, dtypes, extra, [&](const ms_ext::Kernel &kernel, ms_ext::Call &call) {
        std::vector<at::Tensor> results;
        call.keep(results);
        kernel(call);
        for (const at::Tensor &result : results) {
          const at::Tensor dense = result.resolve_conj().resolve_neg().contiguous();
          take(to, static_cast<int>(dense.dim()), dense.sizes().data(), dense.const_data_ptr(), dense.nbytes());
        }
      });
}

// refuse(Tensor x, str why) -> Tensor: what a graph has in the place of a gradient that nobody declared. MindSpore
// takes what is not needed out of a graph, so it runs, and raises, only where the gradient is asked for
// (bridge/kernels/bprops.py).
#include "shim.h"

namespace ms_ext {

struct refuse_shim {
  Tensor x;
  std::string why;
  explicit refuse_shim(Arguments &args) { args >> x >> why; }
  void operator()(Call &) const { TORCH_CHECK(false, why); }
};

}  // namespace ms_ext

using ms_ext::refuse_shim;
MS_EXT_CPU_SHIM(refuse)

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <exception>

#include "errors.h"
#include "gradient/random_state.h"
#include "inference_mode.h"
#include "mindspore/launch_error.h"
#include "shim.h"

namespace ms_ext {

void on_views(c10::Device device, int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
              void *extra, c10::function_ref<void(const Kernel &, Call &)> run) {
  try {
    const OutsideInferenceMode outside_inference_mode;
    // What torch.autocast casts is known when a kernel is made: a program's casts are calls.
    const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
    const auto at_shapes = static_cast<const Kernel &>(*ms_ext_kernel_data(extra)).at(shapes);
    const Kernel &kernel = *at_shapes;
    // MindSpore differentiates; ATen's own autograd and view tracking would only cost time.
    std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd;
    if (!kernel.uses_autograd) below_autograd.emplace();
    auto tensors = kernel.views.take(nparam, params, ndims, shapes, dtypes, device);
    if (kernel.saves_random_state) {
      save_random_state(tensors.back());
      tensors.pop_back();
    }
    Call call(std::move(tensors), kernel.inputs, device, kernel.turns);
    run(kernel, call);
    kernel.views.keep(call.end());
  } catch (const std::exception &error) {
    ms_ext_note_failed_launch();
    throw_labelled(label(extra), error);
  }
}

void launch(c10::Device device, int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
            void *extra) {
  on_views(device, nparam, params, ndims, shapes, dtypes, extra, [&](const Kernel &kernel, Call &call) {
    kernel(call);
    call.check_outputs(params, shapes, ndims);
  });
}

}  // namespace ms_ext

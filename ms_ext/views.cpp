#include "shim.h"

namespace ms_ext {
namespace {

// Points the view at `data`. Whether it could be.
bool point(const at::Tensor &view, void *data, int ndim, const int64_t *shape, const char *dtype, c10::Device device) {
  if (!view.defined() || view.device() != device || view.scalar_type() != scalar_type(dtype) ||
      view.sizes() != at::IntArrayRef(shape, static_cast<size_t>(ndim)) || !view.is_contiguous()) {
    return false;
  }
  view.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(data, device));
  return true;
}

bool is_ours_alone(const at::Tensor &view) {
  return view.use_count() == 1 && view.storage().use_count() == 1 &&
         view.unsafeGetTensorImpl()->autograd_meta() == nullptr;
}

}  // namespace

std::vector<at::Tensor> Views::take(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
                                    c10::Device device) {
  std::vector<at::Tensor> views;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    views = std::move(kept_);
  }
  views.resize(static_cast<size_t>(nparam));
  for (int i = 0; i < nparam; ++i) {
    at::Tensor &kept = views[static_cast<size_t>(i)];
    if (!point(kept, params[i], ndims[i], shapes[i], dtypes[i], device)) {
      kept = view(params[i], ndims[i], shapes[i], dtypes[i], device);
    }
  }
  return views;
}

void Views::keep(std::vector<at::Tensor> views) {
  for (at::Tensor &view : views) {
    if (!is_ours_alone(view)) view.reset();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  kept_ = std::move(views);
}

}  // namespace ms_ext

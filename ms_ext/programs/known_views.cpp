#include "programs/known_views.h"

#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <memory>

namespace ms_ext {
namespace {

// Of what a view has besides its place, all is the other tensor's.
bool is_plain_view(const at::Tensor &view, const at::Tensor &of) {
  return view.defined() && !view.is_same(of) && view.is_alias_of(of) && view.dtype() == of.dtype() &&
         view.key_set() == of.key_set();
}

}  // namespace

bool KnownViews::are_results_of(const c10::FunctionSchema &schema, const std::vector<Boxed> &arguments) {
  if (arguments.empty() || arguments[0].kind != Boxed::kTensor || !arguments[0].tensors[0] ||
      arguments[0].tensors[0]->index < 0) {
    return false;
  }
  const c10::AliasInfo *const alias = schema.arguments()[0].alias_info();
  return alias != nullptr && !alias->isWrite() &&
         std::all_of(arguments.begin() + 1, arguments.end(), [](const Boxed &b) { return b.kind == Boxed::kValue; });
}

bool KnownViews::make(const at::Tensor &of, std::vector<at::Tensor> *views) const {
  const Known *const known = known_.load(std::memory_order_acquire);
  if (known == nullptr || !known->of.is_of(of)) return false;
  for (const Place &place : known->views) {
    views->push_back(at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(of.storage()),
                                                              of.key_set(), of.dtype()));
    views->back().unsafeGetTensorImpl()->set_sizes_and_strides(place.sizes, place.strides, place.offset);
  }
  return true;
}

void KnownViews::note(const at::Tensor &of, const std::vector<at::Tensor> &views) {
  if (known_.load(std::memory_order_relaxed) != nullptr) return;
  if (!std::all_of(views.begin(), views.end(), [&](const at::Tensor &view) { return is_plain_view(view, of); })) return;
  auto known = std::make_unique<Known>();
  known->of = Place(of);
  for (const at::Tensor &view : views) known->views.emplace_back(view);
  const Known *none = nullptr;
  if (known_.compare_exchange_strong(none, known.get(), std::memory_order_release)) static_cast<void>(known.release());
}

}  // namespace ms_ext

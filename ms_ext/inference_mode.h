// PyTorch's inference mode, in which a caller may be.
#pragma once

#include <c10/core/InferenceMode.h>

#include <optional>

namespace ms_ext {

// While it lives, PyTorch is not in that mode on this thread: tensors that are made there have no versions, and can
// never be recorded. MindSpore decides what is.
class OutsideInferenceMode {
 public:
  OutsideInferenceMode() {
    if (c10::InferenceMode::is_enabled()) mode_.emplace(false);
  }
  OutsideInferenceMode(const OutsideInferenceMode &) = delete;
  OutsideInferenceMode &operator=(const OutsideInferenceMode &) = delete;

 private:
  std::optional<c10::InferenceMode> mode_;
};

}  // namespace ms_ext

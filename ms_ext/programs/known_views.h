// Views that a call of a program gives: from the second launch on they are made without PyTorch's dispatcher.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <vector>

#include "boxed.h"

namespace ms_ext {

// How a tensor lies in its memory.
struct Place {
  Place() = default;
  explicit Place(const at::Tensor &tensor)
      : sizes(tensor.sizes()), strides(tensor.strides()), offset(tensor.storage_offset()) {}

  bool is_of(const at::Tensor &tensor) const {
    return tensor.sizes() == at::IntArrayRef(sizes) && tensor.strides() == at::IntArrayRef(strides) &&
           tensor.storage_offset() == offset;
  }

  at::DimVector sizes, strides;
  int64_t offset = 0;
};

class KnownViews {
 public:
  // Whether a call's results may be known: they are in its first argument's memory, as the schema says, and all other
  // arguments are the same in each launch.
  static bool are_results_of(const c10::FunctionSchema &schema, const std::vector<Boxed> &arguments);

  KnownViews() = default;
  ~KnownViews() { delete known_.load(); }

  KnownViews(const KnownViews &) = delete;
  KnownViews &operator=(const KnownViews &) = delete;

  // Makes the views of a tensor. False if no call on a tensor that lies like this one was noted.
  bool make(const at::Tensor &of, std::vector<at::Tensor> *views) const;

  // Notes what the call gave. The first launch that can be noted stays.
  void note(const at::Tensor &of, const std::vector<at::Tensor> &views);

 private:
  struct Known {
    Place of;
    std::vector<Place> views;
  };

  std::atomic<const Known *> known_ = nullptr;  // kernels are launched by several threads
};

}  // namespace ms_ext

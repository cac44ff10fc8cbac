// The casts that Cell.to_float and mindspore.amp ask for.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "include/pynative/backward/function.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "include/pynative/utils/pynative_execute.h"
#include "include/utils/amp.h"
#include "include/utils/pynative/grad_state.h"
#include "mindspore/python/python_object.h"

namespace ms_ext::pynative {

using mindspore::TypeId;

// What Cell.to_float and mindspore.amp ask of the operators that run now.
class MixedPrecision {
 public:
  // Args: the operator's name in the lists of mindspore.amp; nothing for one that takes its inputs as they are.
  explicit MixedPrecision(const std::string &name) : casts_(!name.empty()) {
    if (casts_) asked_->op_prim = std::make_shared<mindspore::Primitive>(name);
  }

  // Casts the floating tensors, recorded for the gradient. `kept` are the positions of those that stay as they are.
  // Returns whether it was asked to.
  bool cast(std::vector<ms::Tensor> &inputs, const std::vector<size_t> &kept) const {
    if (!casts_ || !is_asked()) return false;
    const py::gil_scoped_release released;  // as for every operator of MindSpore's
    for (const ms::Tensor &input : inputs) input.ConvertStubNodeToTensor();
    const TypeId dtype = asked_dtype(inputs);
    const mindspore::kernel::pyboost::RequireGradGuard recorded(mindspore::pynative::GradState::Get().RequiresGrad());
    for (size_t i = 0; i < inputs.size(); ++i) {
      ms::Tensor &input = inputs[i];
      if (!is_floating(input) || input.data_type() == dtype) continue;  // none is floating if the dtype is unknown
      if (std::find(kept.begin(), kept.end(), i) == kept.end()) input = input.cast(dtype);
    }
    return true;
  }

  bool is_asked() const {
    static const auto executor = mindspore::pynative::PyNativeExecutor::GetInstance();
    asked_->mix_type = mindspore::kNotSet;
    asked_->mix_precision_type = nullptr;
    executor->StoreAsyncStatus(asked_);
    return !asked_->async_status.disable_mix_precision;
  }

 private:
  TypeId asked_dtype(const std::vector<ms::Tensor> &inputs) const {
    if (asked_->mix_type == mindspore::kAutoPromote) return widest(inputs);
    if (asked_->mix_precision_type != nullptr) return asked_->mix_precision_type->type_id();
    return asked_->mix_type == mindspore::kFP32   ? TypeId::kNumberTypeFloat32
           : asked_->mix_type == mindspore::kBF16 ? TypeId::kNumberTypeBFloat16
                                                  : TypeId::kNumberTypeFloat16;
  }

  static bool is_floating(const ms::Tensor &tensor) {
    const TypeId dtype = tensor.data_type();
    return dtype == TypeId::kNumberTypeFloat16 || dtype == TypeId::kNumberTypeBFloat16 ||
           dtype == TypeId::kNumberTypeFloat32 || dtype == TypeId::kNumberTypeFloat64;
  }

  // The dtype that holds every floating input; unknown if there is none.
  static TypeId widest(const std::vector<ms::Tensor> &inputs) {
    TypeId found = TypeId::kTypeUnknown;
    for (const ms::Tensor &input : inputs) {
      if (!is_floating(input) || input.data_type() == found) continue;
      const bool has_double = found == TypeId::kNumberTypeFloat64 || input.data_type() == TypeId::kNumberTypeFloat64;
      found = found == TypeId::kTypeUnknown ? input.data_type()
              : has_double                  ? TypeId::kNumberTypeFloat64
                                            : TypeId::kNumberTypeFloat32;
    }
    return found;
  }

  bool casts_;
  std::shared_ptr<mindspore::pynative::PyboostOpRunInfo> asked_ =
      std::make_shared<mindspore::pynative::PyboostOpRunInfo>();
};

// The tensors as a kernel with that name and those inputs to keep would take them. See bridge/primitive/direct.py.
inline std::vector<ms::Tensor> cast(std::vector<ms::Tensor> tensors, const std::string &amp_name,
                                    const std::vector<size_t> &kept) {
  {
    const py::gil_scoped_release released;
    for (const ms::Tensor &tensor : tensors) tensor.ConvertStubNodeToTensor();  // else Python cannot have it back
  }
  MixedPrecision(amp_name).cast(tensors, kept);
  return tensors;
}

// Whether a cell or a network that runs now asks for it, of whichever operators.
inline bool has_mixed_precision() {
  static const MixedPrecision of_all("Custom");
  return mindspore::amp::GetCurrentAmpStrategy() != nullptr || of_all.is_asked();
}

}  // namespace ms_ext::pynative

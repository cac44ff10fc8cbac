#include <ATen/core/List.h>
#include <c10/util/Exception.h>

#include "shim.h"

namespace ms_ext {

std::optional<at::Tensor> Call::operator()(const OptionalTensor &argument) const {
  if (!argument) return std::nullopt;
  return (*this)(*argument);
}

std::vector<at::Tensor> Call::operator()(const TensorList &arguments) const {
  std::vector<at::Tensor> tensors;
  tensors.reserve(arguments.size());
  for (const auto &argument : arguments) tensors.push_back((*this)(argument));
  return tensors;
}

c10::List<std::optional<at::Tensor>> Call::operator()(const OptionalTensorList &arguments) const {
  c10::List<std::optional<at::Tensor>> tensors;
  tensors.reserve(arguments.size());
  for (const auto &argument : arguments) tensors.push_back((*this)(argument));
  return tensors;
}

void Call::take(std::vector<at::Tensor> results, Donation &donation) {
  std::erase_if(results, [](const at::Tensor &result) { return !result.defined(); });
  donation.end(results);
  if (kept_ != nullptr) {
    *kept_ = std::move(results);
  } else {
    place(std::move(results));
  }
}

void Call::check(const std::vector<at::Tensor> &results) const {
  const auto outputs = outs();
  TORCH_CHECK(results.size() == outputs.size(), "it gave ", results.size(), " results, but ", outputs.size(),
              " were inferred");
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor &result = results[i];
    TORCH_CHECK(result.sizes() == outputs[i].sizes() && result.scalar_type() == outputs[i].scalar_type(), "result ", i,
                " is ", result.scalar_type(), " ", result.sizes(), ", but ", outputs[i].scalar_type(), " ",
                outputs[i].sizes(), " was inferred");
  }
}

void Call::place(std::vector<at::Tensor> results) {
  check(results);
  const auto outputs = outs();
  const auto in_place = [](const at::Tensor &result, const at::Tensor &output) {
    return result.const_data_ptr() == output.const_data_ptr() && result.is_contiguous() && !result.is_conj() &&
           !result.is_neg();
  };
  // A result in another output's memory, or in its own with other strides, must leave before that is written to.
  for (size_t i = 0; i < results.size(); ++i) {
    at::Tensor &result = results[i];
    if (in_place(result, outputs[i])) continue;
    for (const auto &output : outputs) {
      if (result.numel() > 0 && result.storage().data() == output.storage().data()) {
        result = result.clone(c10::MemoryFormat::Contiguous);
        break;
      }
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!in_place(results[i], outputs[i])) outputs[i].copy_(results[i]);
  }
}

void Call::check_outputs(void **params, int64_t **shapes, const int *ndims) const {
  for (size_t i = inputs_; i < tensors_.size(); ++i) {
    const at::Tensor &output = tensors_[i];
    const at::IntArrayRef expected(shapes[i], static_cast<size_t>(ndims[i]));
    TORCH_CHECK(output.sizes() == expected && output.is_contiguous() &&
                    (output.numel() == 0 || output.const_data_ptr() == params[i]),
                "output ", i - inputs_, " became ", output.sizes(), " with strides ", output.strides(), ", but ",
                expected, " was inferred");
  }
}

}  // namespace ms_ext

// A call that PyTorch's autograd records and differentiates (gradient/recorded_call.h), on MindSpore's tensors.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "function_of.h"
#include "gradient/recorded_call.h"
#include "include/pynative/backward/function.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "mindspore/python/inference.h"
#include "mindspore/python/memory.h"
#include "mindspore/python/needs.h"

namespace ms_ext::pynative {

#define MS_EXT_TORCH(name) static const auto name = function_of<decltype(::name)>("libms_ext.so", #name)

using Flags = std::unique_ptr<bool[]>;

// What PyTorch recorded of a call.
class TorchCall {
 public:
  TorchCall(RecordedCall *call, const std::vector<ms::Tensor> &inputs, const std::vector<ms::Tensor> &outputs)
      : call_(call) {
    versions_.reserve(inputs.size() + outputs.size());
    for (const auto *tensors : {&inputs, &outputs}) {
      for (const ms::Tensor &tensor : *tensors) {
        const mindspore::tensor::Version &version = tensor.tensor()->version();
        versions_.push_back({version, version.current_version()});
      }
    }
  }

  ~TorchCall() {
    MS_EXT_TORCH(ms_ext_free_call);
    ms_ext_free_call(call_);
  }

  TorchCall(const TorchCall &) = delete;
  TorchCall &operator=(const TorchCall &) = delete;

  // Once; None where a gradient is not wanted or zero.
  mindspore::ValuePtrList differentiate(const mindspore::ValuePtrList &gradients, const Flags &wanted,
                                        size_t inputs) const {
    MS_EXT_TORCH(ms_ext_written);
    MS_EXT_TORCH(ms_ext_differentiate_call);
    for (size_t i = 0; i < versions_.size(); ++i) {
      const auto &[version, known] = versions_[i];
      if (version.current_version() != known) ms_ext_written(call_, i);  // PyTorch knows whether it matters
    }
    std::vector<TensorMemory> given, found(inputs);
    given.reserve(gradients.size());
    for (const mindspore::ValuePtr &gradient : gradients) {
      const bool unused = gradient->isa<mindspore::None>();
      given.push_back(unused ? TensorMemory() : Owner::memory_of(gradient->cast<TensorPtr>(), kHost));
    }
    ms_ext_differentiate_call(call_, given.data(), wanted.get(), found.data());
    mindspore::ValuePtrList values;
    values.reserve(inputs);
    for (const TensorMemory &memory : found) {
      values.push_back(memory.dtype == nullptr ? mindspore::kNone : mindspore::ValuePtr(tensor_on(memory, 0)));
    }
    return values;
  }

 private:
  static constexpr int kHost = -1;

  RecordedCall *call_;
  // Of the inputs and the results, each with what it was at the call.
  std::vector<std::pair<mindspore::tensor::Version, uint32_t>> versions_;
};

// Makes the calls of a kernel so that PyTorch records them.
class TorchRecorder {
 public:
  TorchRecorder(const std::string &op, const std::string &text) {
    MS_EXT_TORCH(ms_ext_recorder);
    recorder_ = ms_ext_recorder(op.c_str(), text.data(), text.size());
  }

  ~TorchRecorder() {
    MS_EXT_TORCH(ms_ext_free_recorder);
    ms_ext_free_recorder(recorder_);
  }

  TorchRecorder(const TorchRecorder &) = delete;
  TorchRecorder &operator=(const TorchRecorder &) = delete;

  // For each input, whether MindSpore differentiates it; null if it does none.
  static Flags differentiated(const std::vector<ms::Tensor> &inputs) {
    bool any = false;
    Flags flags = std::make_unique<bool[]>(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) any |= flags[i] = has_gradient(inputs[i].tensor());
    return any ? std::move(flags) : nullptr;
  }

  // Makes the call, and fills in its results, which `specs` describe. Null if PyTorch has no gradient of it. Without
  // the GIL.
  std::shared_ptr<TorchCall> operator()(const std::vector<ms::Tensor> &inputs, const Flags &differentiated,
                                        const std::vector<Spec> &specs, std::vector<ms::Tensor> *outputs) const {
    MS_EXT_TORCH(ms_ext_record_call);
    std::vector<TensorMemory> given, results(specs.size());
    given.reserve(inputs.size());
    outputs->reserve(specs.size());
    for (const ms::Tensor &input : inputs) given.push_back(Owner::memory_of(input.tensor(), -1));
    RecordedCall *call =
        ms_ext_record_call(recorder_, given.data(), differentiated.get(), given.size(), results.data(), results.size());
    for (const TensorMemory &result : results) outputs->emplace_back(tensor_on(result, 0));
    return call == nullptr ? nullptr : std::make_shared<TorchCall>(call, inputs, *outputs);
  }

 private:
  Recorder *recorder_;
};

}  // namespace ms_ext::pynative

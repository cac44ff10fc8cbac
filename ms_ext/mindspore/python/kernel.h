// A call in PyNative mode, by MindSpore's interfaces in C++ for operators (ms::pynative::PyboostRunner) and for their
// gradients (CppFunctionNode), which a call passes in a third of the time that a primitive takes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "include/pynative/backward/function.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "include/utils/pynative/grad_state.h"
#include "mindspore/python/inference.h"
#include "mindspore/python/mixed_precision.h"
#include "mindspore/python/opened_shim.h"
#include "mindspore/python/python_object.h"
#include "mindspore/python/queues.h"
#include "mindspore/python/record.h"
#include "mindspore/python/runner.h"
#include "mindspore/python/tensor_object.h"
#include "mindspore/python/torch_call.h"

namespace ms_ext::pynative {

// A kernel as Python calls it.
class Kernel {
 public:
  // Args: those of Shim; whether the result is one tensor; that of Inference; differentiate(inputs, out, dout), which
  // is given None as `out` unless it uses the results; for MixedPrecision, the name and which inputs to keep;
  // whether PyTorch can record the call.
  Kernel(const std::string &library, const std::string &function, bool on_host, bool at_once, const std::string &op,
         const std::string &args, bool single, py::function infer, py::object differentiate, bool uses_results,
         const std::string &amp_name, std::vector<size_t> kept, bool recordable)
      : shim_(std::make_shared<Shim>(library, function, on_host, at_once, op, args)),
        infer_(std::move(infer)),
        bprop_(std::make_shared<Bprop>(op.find("::") == std::string::npos ? "aten." + op : op, on_host, single,
                                       uses_results, std::move(differentiate))),
        precision_(amp_name),
        kept_(std::move(kept)) {
    if (recordable) recorder_.emplace(op, args);
  }

  // The results; None for inputs that only a primitive can take, or refuse.
  py::object operator()(const py::sequence &tensors) {
    std::vector<ms::Tensor> inputs = ready(tensors);
    if (!first_) first_ = specs_of(inputs);
    return call(std::move(inputs));
  }

  // The same; None for inputs of other shapes or dtypes than those of the first call too.
  py::object again(const py::sequence &tensors) {
    std::vector<ms::Tensor> inputs = ready(tensors);
    return first_ && are(inputs, *first_) ? call(std::move(inputs)) : py::none();
  }

 private:
  std::vector<ms::Tensor> ready(const py::sequence &tensors) const {
    std::vector<ms::Tensor> inputs;
    inputs.reserve(tensors.size());
    for (const py::handle tensor : tensors) inputs.push_back(tensor_from(tensor));
    wait_for(inputs);
    return inputs;
  }

  py::object call(std::vector<ms::Tensor> inputs) {
    if (precision_.cast(inputs, kept_)) wait_for(inputs);
    const Specs specs = infer_(inputs);
    if (specs == nullptr) return py::none();
    const std::vector<ms::Tensor> outputs = run(inputs, specs);
    if (bprop_->single) return py::cast(outputs.front());
    py::tuple results(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) results[i] = py::cast(outputs[i]);
    return results;
  }

  // The results, recorded if MindSpore records.
  std::vector<ms::Tensor> run(const std::vector<ms::Tensor> &inputs, const Specs &specs) const {
    const bool records = mindspore::pynative::GradState::Get().RequiresGrad();
    const Flags differentiated = records && recorder_ ? TorchRecorder::differentiated(inputs) : nullptr;
    std::vector<ms::Tensor> outputs;
    if (differentiated != nullptr) {
      const py::gil_scoped_release released;
      auto call = (*recorder_)(contiguous(inputs), differentiated, *specs, &outputs);
      if (call != nullptr) record(inputs, specs, outputs, std::move(call));
      return outputs;
    }
    for (const Spec &spec : *specs) outputs.emplace_back(spec.dtype, spec.shape);
    const auto given = [&] {
      const py::gil_scoped_release released;
      return contiguous(inputs);
    }();
    std::make_shared<Runner>(bprop_->name, shim_)->Run(given, outputs);
    if (records && !recorder_) {
      const py::gil_scoped_release released;
      record(inputs, specs, outputs, nullptr);
    }
    return outputs;
  }

  // Without the GIL, for which the thread of MindSpore's queue may wait while the queue is full.
  void record(const std::vector<ms::Tensor> &inputs, const Specs &specs, const std::vector<ms::Tensor> &outputs,
              std::shared_ptr<TorchCall> call) const {
    std::make_shared<Recorded>(bprop_, specs, std::move(call))->record(held(inputs), held(outputs));
  }

  // MindSpore's own operators are taken up by one thread, and run by another. They come before this one.
  void wait_for(const std::vector<ms::Tensor> &inputs) const {
    const py::gil_scoped_release released;
    wait_for_mindspore(shim_->at_once);
    for (const ms::Tensor &input : inputs) input.ConvertStubNodeToTensor();
  }

  // Without the GIL, which MindSpore's threads may need for what they copy here.
  static std::vector<ms::Tensor> contiguous(std::vector<ms::Tensor> inputs) {
    const mindspore::kernel::pyboost::RequireGradGuard unrecorded(false);
    for (ms::Tensor &input : inputs) {
      if (!input.is_contiguous()) input = input.contiguous();
    }
    return inputs;
  }

  static mindspore::pynative::autograd::TensorPtrList held(const std::vector<ms::Tensor> &tensors) {
    mindspore::pynative::autograd::TensorPtrList list;
    list.reserve(tensors.size());
    for (const ms::Tensor &tensor : tensors) list.push_back(tensor.tensor());
    return list;
  }

  std::shared_ptr<Shim> shim_;
  Inference infer_;
  std::shared_ptr<Bprop> bprop_;
  MixedPrecision precision_;
  std::vector<size_t> kept_;
  std::optional<TorchRecorder> recorder_;
  std::optional<std::vector<Spec>> first_;  // the inputs of the first call, as they were given
};

}  // namespace ms_ext::pynative

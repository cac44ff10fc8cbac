// A call as MindSpore records it for its gradient.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "include/pynative/backward/function.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "include/runtime/pipeline/pipeline.h"
#include "include/utils/pynative/grad_state.h"
#include "mindspore/python/filled.h"
#include "mindspore/python/inference.h"
#include "mindspore/python/needs.h"
#include "mindspore/python/python_object.h"
#include "mindspore/python/queues.h"
#include "mindspore/python/received.h"
#include "mindspore/python/torch_call.h"

namespace ms_ext::pynative {

// What differentiates the calls of a kernel.
struct Bprop {
  Bprop(std::string name, bool on_host, bool single, bool uses_results, py::object function)
      : name(std::move(name)),
        on_host(on_host),
        single(single),
        uses_results(uses_results),
        function(std::move(function)) {}

  std::string name;  // what errors call the kernel
  bool on_host;
  bool single;  // whether the kernel's result is one tensor
  bool uses_results;
  // Of inputs, result and the result's gradient. Gives None for a gradient that is not asked for, and an error for one
  // that must not be.
  PythonObject function;
};

// Stands for a call where MindSpore's templates want a type.
struct Call;

}  // namespace ms_ext::pynative

namespace mindspore::pynative::autograd {

// A recorded call.
template <>
struct CppFunctionNode<ms_ext::pynative::Call> final : public BackwardNode {
  // Records nothing yet: `record` does. `call` is what PyTorch recorded of it, or null.
  CppFunctionNode(std::shared_ptr<ms_ext::pynative::Bprop> bprop, ms_ext::pynative::Specs specs,
                  std::shared_ptr<ms_ext::pynative::TorchCall> call)
      : BackwardNode(bprop->name, specs->size()),
        bprop_(std::move(bprop)),
        specs_(std::move(specs)),
        call_(std::move(call)) {}

  void record(const TensorPtrList &inputs, TensorPtrList outputs) {
    context_.node_ = weak_from_this();
    inputs_ = inputs.size();
    for (const tensor::TensorPtr &input : inputs) {
      if (auto found = ms_ext::pynative::AllReceived::get().of(input)) received_.push_back(std::move(found));
    }
    TensorPtrList saved;
    saved.reserve(inputs.size() + outputs.size());
    saved.assign(inputs.begin(), inputs.end());
    if (bprop_->uses_results) saved.insert(saved.end(), outputs.begin(), outputs.end());
    context_.SaveForBackward(saved);
    CppFunctionDoGrad(&context_, inputs, &outputs);
    // That leaves the results in to_save_ too, and they hold this node: a call that is never differentiated would stay.
    mindspore::runtime::Pipeline::Get().bprop_stage()->Push(
        std::make_shared<Saved>(std::static_pointer_cast<CppFunctionNode>(shared_from_this())));
  }

  // By what PyTorch recorded, once. A gradient that is differentiated itself is a call in its turn.
  ValuePtrList CallBackward(const ValuePtrList &gradients) override {
    for (const auto &received : received_) received->gradient = true;
    const auto call = GradState::Get().RequiresGrad() ? nullptr : std::exchange(call_, nullptr);
    return call != nullptr ? by_torch(*call, gradients) : by_calls(gradients);
  }

  void Release() override {
    context_.saved_tensors_.clear();
    call_.reset();
  }

 private:
  ValuePtrList by_torch(const ms_ext::pynative::TorchCall &call, const ValuePtrList &gradients) const {
    std::optional<py::gil_scoped_release> released;  // PyTorch's engine wants it
    if (PyGILState_Check() != 0) released.emplace();
    ms_ext::wait_for_mindspore(true);
    const auto wanted = std::make_unique<bool[]>(inputs_);
    for (size_t i = 0; i < inputs_; ++i) wanted[i] = ms_ext::pynative::is_asked(*this, i);
    return call.differentiate(gradients, wanted, inputs_);
  }

  ValuePtrList by_calls(const ValuePtrList &gradients) {
    const TensorPtrList saved = context_.GetSavedTensors();
    const TensorPtrList cotangents = complete(gradients);
    std::vector<ms::Tensor> results(inputs_);
    {
      const py::gil_scoped_acquire gil;
      const py::object out = bprop_->uses_results ? packed(saved.begin() + inputs_, saved.end()) : py::none();
      const py::tuple found = (*bprop_->function)(tuple(saved.begin(), saved.begin() + inputs_), out,
                                                  packed(cotangents.begin(), cotangents.end()));
      for (size_t i = 0; i < inputs_; ++i) {
        const py::object one = found[i];
        if (PyExceptionInstance_Check(one.ptr())) {
          if (ms_ext::pynative::is_asked(*this, i)) raise(one);
        } else if (!one.is_none()) {
          results[i] = one.cast<ms::Tensor>();
        }
      }
    }
    ValuePtrList values;
    for (const ms::Tensor &result : results) {
      if (result.is_defined()) {
        result.ConvertStubNodeToTensor();
        values.push_back(result.tensor());
      } else {
        values.push_back(kNone);
      }
    }
    return values;
  }

  // After MindSpore's task that saves the tensors, on the same thread.
  class Saved final : public mindspore::runtime::AsyncTask {
   public:
    explicit Saved(std::shared_ptr<CppFunctionNode> node)
        : AsyncTask(mindspore::runtime::kBpropTask), node_(std::move(node)) {}
    void Run() override { node_->context_.to_save_.clear(); }

   private:
    std::shared_ptr<CppFunctionNode> node_;
  };

  [[noreturn]] static void raise(const py::object &error) {
    PyErr_SetObject(PyExceptionInstance_Class(error.ptr()), error.ptr());
    throw py::error_already_set();
  }

  using Iterator = TensorPtrList::const_iterator;

  // With zeros for results that nobody used.
  TensorPtrList complete(const ValuePtrList &gradients) const {
    TensorPtrList completed;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const ms_ext::pynative::Spec &spec = (*specs_)[i];
      if (!gradients[i]->isa<None>()) {
        completed.push_back(gradients[i]->cast<TensorPtr>());
      } else {
        const ms::Tensor zeros(spec.dtype, spec.shape);
        std::make_shared<ms_ext::pynative::Zeros>(bprop_->on_host)->Run({}, {zeros});
        completed.push_back(zeros.tensor());
      }
    }
    return completed;
  }

  static py::tuple tuple(Iterator begin, Iterator end) {
    py::tuple tensors(end - begin);
    for (size_t i = 0; begin != end; ++i, ++begin) tensors[i] = py::cast(ms::Tensor(*begin));
    return tensors;
  }

  py::object packed(Iterator begin, Iterator end) const {
    return bprop_->single ? py::cast(ms::Tensor(*begin)) : py::object(tuple(begin, end));
  }

  std::shared_ptr<ms_ext::pynative::Bprop> bprop_;
  ms_ext::pynative::Specs specs_;
  std::shared_ptr<ms_ext::pynative::TorchCall> call_;
  std::vector<std::shared_ptr<ms_ext::pynative::Received>> received_;  // by those inputs that are modules' Parameters
  size_t inputs_ = 0;
  AutogradContext context_;
};

}  // namespace mindspore::pynative::autograd

namespace ms_ext::pynative {

using Recorded = mindspore::pynative::autograd::CppFunctionNode<Call>;

}  // namespace ms_ext::pynative

#include "gradient/recorded_call.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "as_in_pytorch.h"
#include "errors.h"
#include "gradient/differentiable.h"
#include "gradient/few_nodes.h"
#include "gradient/overload.h"
#include "inference_mode.h"
#include "programs/torch_memory.h"

namespace ms_ext {

struct Recorder {
  Recorder(const std::string &name, Arguments args) : label("aten." + name), overload(name, args) {}
  std::string label;
  Overload overload;
};

struct RecordedCall {
  const std::string label;
  std::vector<at::Tensor> inputs;   // leaves
  std::vector<at::Tensor> results;  // as autograd has them
};

namespace {

template <typename Function>
auto labelled(const std::string &label, Function function) {
  try {
    return function();
  } catch (const std::exception &error) {
    throw_labelled(label, error);
  }
}

// The result for MindSpore, where tensors do not share memory: PyTorch's results of views do, with an input.
at::Tensor unshared(const at::Tensor &result, const std::vector<at::Tensor> &inputs) {
  const bool shared =
      std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor &input) { return result.is_alias_of(input); });
  const at::Tensor own = plain(result);
  const bool whole = own.nbytes() == own.storage().nbytes();
  return (shared && own.is_alias_of(result)) || !whole ? own.clone(at::MemoryFormat::Contiguous) : own;
}

std::unique_ptr<RecordedCall> record(const Recorder &recorder, const TensorMemory *inputs, const bool *differentiated,
                                     size_t input_count, TensorMemory *results, size_t result_count) {
  const AsInPyTorch as_in_pytorch;
  const OutsideInferenceMode outside_inference_mode;
  auto call = std::make_unique<RecordedCall>(RecordedCall{recorder.label, {}, {}});
  call->inputs.reserve(input_count);
  for (size_t i = 0; i < input_count; ++i) {
    at::Tensor tensor = tensor_on(inputs[i]);
    if (differentiated[i] && is_differentiable(tensor) && !recorder.overload.is_state(i)) {
      tensor.set_requires_grad(true);
    }
    call->inputs.push_back(std::move(tensor));
  }
  {
    const at::AutoGradMode recording(true);
    call->results = recorder.overload(call->inputs, c10::kCPU);
  }
  TORCH_CHECK(call->results.size() == result_count, "it gave ", call->results.size(), " results, not ", result_count);
  for (size_t i = 0; i < result_count; ++i) results[i] = memory_of(unshared(call->results[i], call->inputs));
  const bool depends = std::any_of(call->results.begin(), call->results.end(),
                                   [](const at::Tensor &result) { return result.requires_grad(); });
  return depends ? std::move(call) : nullptr;
}

void differentiate_call(const RecordedCall &call, const TensorMemory *result_gradients, const bool *wanted,
                        TensorMemory *gradients) {
  const AsInPyTorch as_in_pytorch;
  const OutsideInferenceMode outside_inference_mode;
  give(differentiate_recorded(call.inputs, wanted, call.results, tensors_on(result_gradients, call.results.size())),
       gradients);
}

}  // namespace
}  // namespace ms_ext

using ms_ext::RecordedCall;
using ms_ext::Recorder;
using ms_ext::TensorMemory;

extern "C" {

Recorder *ms_ext_recorder(const char *op, const char *text, size_t text_size) {
  return new Recorder(op, ms_ext::Arguments(std::string(text, text_size)));
}

void ms_ext_free_recorder(Recorder *recorder) { delete recorder; }

RecordedCall *ms_ext_record_call(const Recorder *recorder, const TensorMemory *inputs, const bool *differentiated,
                                 size_t input_count, TensorMemory *results, size_t result_count) {
  return ms_ext::labelled(recorder->label, [&] {
    return ms_ext::record(*recorder, inputs, differentiated, input_count, results, result_count).release();
  });
}

void ms_ext_written(const RecordedCall *call, size_t tensor) {
  const size_t inputs = call->inputs.size();
  const at::Tensor &written = tensor < inputs ? call->inputs[tensor] : call->results[tensor - inputs];
  written.unsafeGetTensorImpl()->bump_version();
}

void ms_ext_differentiate_call(const RecordedCall *call, const TensorMemory *result_gradients, const bool *wanted,
                               TensorMemory *gradients) {
  ms_ext::labelled(call->label, [&] { ms_ext::differentiate_call(*call, result_gradients, wanted, gradients); });
}

void ms_ext_free_call(RecordedCall *call) { delete call; }

}  // extern "C"

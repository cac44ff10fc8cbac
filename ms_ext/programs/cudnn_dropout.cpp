// The state from which cuDNN's recurrent layers draw for dropout (bridge/programs/packed.py). PyTorch keeps one for
// each GPU to itself, makes it where a layer first needs it, and makes it anew after a seed. It passes the state to
// aten::_cudnn_rnn: a layer of one number is called here, and that call is caught on its way.
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <map>
#include <mutex>

namespace ms_ext {
namespace {

// Nothing else of PyTorch's is under this key, and nothing without it comes past here.
constexpr auto kCatching = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local at::Tensor caught_state;

// In place of aten::_cudnn_rnn: its last argument is the state. Of the results the last hidden state must be empty.
void catch_state(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const size_t arguments = op.schema().arguments().size();
  const at::Tensor nothing = at::empty({0}, torch::jit::peek(*stack, 0, arguments).toTensor().options());
  caught_state = torch::jit::peek(*stack, arguments - 1, arguments).toTensor();
  torch::jit::drop(*stack, arguments);
  for (size_t i = 0; i < op.schema().returns().size(); ++i) torch::jit::push(*stack, nothing);
}

// What the forward passes were given last, by the GPUs.
std::mutex kept_mutex;
std::map<c10::DeviceIndex, at::Tensor> kept_states;

at::Tensor state(const at::Tensor &input, double dropout) {
  const at::NoGradGuard no_grad;
  caught_state.reset();
  const at::Tensor one = at::empty({1, 1, 1}, input.options());
  const at::Tensor weight = at::empty({1, 1}, input.options());
  {
    const c10::impl::IncludeDispatchKeyGuard catching(kCatching);
    at::rnn_tanh(one, one, {weight, weight}, /*has_biases=*/false, /*num_layers=*/1, dropout, /*train=*/true,
                 /*bidirectional=*/false, /*batch_first=*/false);
  }
  at::Tensor found = std::move(caught_state);
  TORCH_CHECK(found.defined(), "PyTorch has passed no state of cuDNN's dropout");
  const std::lock_guard lock(kept_mutex);
  kept_states[input.get_device()] = found;
  return found;
}

// For the gradient, which reads what was drawn elsewhere.
at::Tensor kept_state(const at::Tensor &input) {
  const std::lock_guard lock(kept_mutex);
  return kept_states.at(input.get_device());
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("_cudnn_rnn", torch::CppFunction::makeFromBoxedFunction<&catch_state>());
}

TORCH_LIBRARY_FRAGMENT(bridge, library) {
  const auto key = c10::DispatchKey::CompositeExplicitAutograd;
  library.def(torch::schema("cudnn_dropout_state(Tensor input, float dropout) -> Tensor", false),
              torch::dispatch(key, state), {at::Tag::nondeterministic_seeded});
  library.def(torch::schema("kept_cudnn_dropout_state(Tensor input) -> Tensor", false),
              torch::dispatch(key, kept_state));
}

}  // namespace ms_ext

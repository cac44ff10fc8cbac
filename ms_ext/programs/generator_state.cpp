// The state of PyTorch's own generators: a program that counts draws what the module's will draw after it, and gives
// the draws back (bridge/programs/drawn_before.py).
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <mutex>

namespace ms_ext {
namespace {

// A GPU's is its offset: a seed stays, and the generator's whole state would have cuDNN's dropout begin anew.
at::Tensor generator_state(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (device.is_cpu()) return generator.get_state();
  return at::scalar_tensor(static_cast<int64_t>(generator.get_offset()), at::kLong);
}

void set_generator_state(const at::Tensor &state, c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (device.is_cpu()) {
    generator.set_state(state);
  } else {
    generator.set_offset(static_cast<uint64_t>(state.item<int64_t>()));
  }
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(bridge, library) {
  const auto key = c10::DispatchKey::CompositeExplicitAutograd;
  library.def(torch::schema("generator_state(Device device) -> Tensor", false), torch::dispatch(key, generator_state),
              {at::Tag::nondeterministic_seeded});
  library.def(torch::schema("set_generator_state(Tensor state, Device device) -> ()", false),
              torch::dispatch(key, set_generator_state), {at::Tag::nondeterministic_seeded});
}

}  // namespace ms_ext

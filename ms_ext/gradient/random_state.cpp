#include "gradient/random_state.h"

#include <ATen/Context.h>

#include <unordered_map>

namespace ms_ext {
namespace {

struct Ledger {
  std::mutex mutex;
  std::unordered_map<const void *, at::Tensor> states;
};

Ledger &ledger() {
  static auto *const instance = new Ledger;  // never destroyed: kernels may outlive static objects
  return *instance;
}

at::Tensor state_of(at::Generator &generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator &generator, const at::Tensor &state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

at::Tensor saved_state(const at::Tensor &place) {
  if (place.is_cpu()) return place.clone();
  Ledger &saved = ledger();
  const std::lock_guard<std::mutex> lock(saved.mutex);
  const auto found = saved.states.find(place.const_data_ptr());
  TORCH_CHECK(found != saved.states.end(), "the state of its draw was moved to other memory, where it is unknown");
  return found->second;
}

}  // namespace

void save_random_state(const at::Tensor &place) {
  at::Generator generator = at::globalContext().defaultGenerator(place.device());
  at::Tensor state = state_of(generator);
  if (place.is_cpu()) {
    place.copy_(state);
    return;
  }
  Ledger &saved = ledger();
  const std::lock_guard<std::mutex> lock(saved.mutex);
  saved.states.insert_or_assign(place.const_data_ptr(), std::move(state));
}

Redraw::Redraw(const at::Tensor &place)
    : generator_(at::globalContext().defaultGenerator(place.device())), before_(state_of(generator_)) {
  set_state(generator_, saved_state(place));
}

Redraw::~Redraw() { set_state(generator_, before_); }

}  // namespace ms_ext

#include "programs/python/torch_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gradient/few_nodes.h"
#include "inference_mode.h"
#include "programs/leaves_no_python.h"
#include "programs/torch_memory.h"

namespace {

using ms_ext::TensorMemory;
using Tensors = std::vector<at::Tensor>;

// Calls a function that may throw: false if it did, with Python's error set.
template <typename Function>
bool succeeds(Function function) {
  try {
    function();
    return true;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return false;
  }
}

Tensors unpacked(PyObject *const *objects, size_t count) {
  Tensors tensors;
  tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) tensors.push_back(THPVariable_Unpack(objects[i]));
  return tensors;
}

// Hooks that run when PyTorch has added to a parameter's `grad` (bridge/programs/refusals.py has the words).
void refuse_hooks_of_sums(const Tensors &leaves) {
  for (const at::Tensor &leaf : leaves) {
    if (torch::autograd::impl::post_acc_grad_hooks(leaf) == nullptr) continue;
    throw std::runtime_error(
        "a parameter has post accumulate grad hooks, which do not run: gradients are values here, and nothing is added "
        "to `grad`. Change the gradients before the optimizer's call");
  }
}

// What keeps memory whose content has moved: where it is now, and where it was, which others may still use.
struct Moved {
  at::Tensor now;
  std::shared_ptr<c10::DataPtr> former = std::make_shared<c10::DataPtr>();
};

}  // namespace

extern "C" {

PyObject *ms_ext_to_torch(const TensorMemory *memory, ms_ext::Gradient gradient, PyObject **leaf) {
  PyObject *result = nullptr;
  succeeds([&] {
    at::Tensor tensor = ms_ext::tensor_on(*memory);
    const bool has_gradient = at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
    if (has_gradient && gradient != ms_ext::Gradient::kNone) {
      tensor.set_requires_grad(true);
      *leaf = THPVariable_Wrap(tensor);
    }
    if (has_gradient && gradient == ms_ext::Gradient::kOfResult) {
      const c10::AutoGradMode recording(true);
      tensor = at::_unsafe_view(tensor, tensor.sizes());  // not a view where autograd is concerned
    }
    result = THPVariable_Wrap(std::move(tensor));
  });
  return result;
}

bool ms_ext_is_torch(PyObject *object) { return THPVariable_CheckExact(object); }

bool ms_ext_from_torch(PyObject *tensor, TensorMemory *memory) {
  return succeeds([&] { *memory = ms_ext::memory_of(ms_ext::plain(THPVariable_Unpack(tensor))); });
}

const void *ms_ext_torch_address(PyObject *tensor) {
  const at::Tensor &found = THPVariable_Unpack(tensor);
  const bool is_plain = found.is_contiguous() && !found.is_conj() && !found.is_neg();
  return is_plain ? found.const_data_ptr() : nullptr;
}

bool ms_ext_torch_requires_grad(PyObject *tensor) { return THPVariable_Unpack(tensor).requires_grad(); }

bool ms_ext_torch_has_hooks(PyObject *tensor) {
  const at::Tensor &found = THPVariable_Unpack(tensor);
  if (torch::autograd::impl::get_autograd_meta(found) == nullptr) return false;
  return !torch::autograd::impl::hooks(found).empty() || torch::autograd::impl::post_acc_grad_hooks(found) != nullptr;
}

uint32_t ms_ext_torch_version(PyObject *tensor) { return THPVariable_Unpack(tensor)._version(); }

void ms_ext_torch_written(PyObject *tensor) { THPVariable_Unpack(tensor).unsafeGetTensorImpl()->bump_version(); }

bool ms_ext_torch_set_data(PyObject *tensor, const TensorMemory *memory) {
  return succeeds([&] { THPVariable_Unpack(tensor).set_data(ms_ext::tensor_on(*memory)); });
}

bool ms_ext_torch_move(PyObject *tensor, const TensorMemory *memory) {
  return succeeds([&] {
    const at::Tensor &moved = THPVariable_Unpack(tensor);
    at::Tensor there = ms_ext::tensor_on(*memory);
    there.copy_(ms_ext::plain(moved));
    moved.set_data(there);
  });
}

void *ms_ext_torch_hold(PyObject *tensor) {
  const at::Tensor &found = THPVariable_Unpack(tensor);
  if (!found.has_storage() || found.nbytes() == 0 || found.nbytes() != found.storage().nbytes()) return nullptr;
  return new c10::Storage(found.storage());
}

void ms_ext_torch_drop(void *held) { delete static_cast<c10::Storage *>(held); }

size_t ms_ext_torch_references(void *held) { return static_cast<c10::Storage *>(held)->use_count(); }

bool ms_ext_torch_move_away(void *held, const void *place, TensorMemory *former) {
  return succeeds([&] {
    c10::Storage &storage = *static_cast<c10::Storage *>(held);
    if (storage.data() != place) return;
    const auto bytes = at::TensorOptions(at::kByte).device(storage.device());
    const auto count = static_cast<int64_t>(storage.nbytes());
    auto moved = std::make_unique<Moved>();
    moved->now = at::empty({count}, bytes);
    moved->now.copy_(at::empty({0}, bytes).set_(storage, 0, {count}, {}));
    void *data = moved->now.mutable_data_ptr();
    const auto release = [](void *object) { delete static_cast<Moved *>(object); };
    Moved *owner = moved.release();
    *owner->former = storage.set_data_ptr(c10::DataPtr(data, owner, release, bytes.device()));
    former->owner = new std::shared_ptr<c10::DataPtr>(owner->former);
    former->release = [](void *object) { delete static_cast<std::shared_ptr<c10::DataPtr> *>(object); };
  });
}

bool ms_ext_torch_set_requires_grad(PyObject *tensor, bool requires_grad) {
  return succeeds([&] { THPVariable_Unpack(tensor).set_requires_grad(requires_grad); });
}

void *ms_ext_torch_leave_inference_mode() {
  return c10::InferenceMode::is_enabled() ? new ms_ext::OutsideInferenceMode() : nullptr;
}

void ms_ext_torch_enter_again(void *left) { delete static_cast<ms_ext::OutsideInferenceMode *>(left); }

bool ms_ext_torch_record(bool enabled) {
  const bool before = c10::GradMode::is_enabled();
  c10::GradMode::set_enabled(enabled);
  return before;
}

bool ms_ext_differentiate(PyObject *const *inputs, const bool *wanted, size_t input_count, PyObject *const *outputs,
                          const TensorMemory *output_gradients, size_t output_count, bool is_torch_code,
                          TensorMemory *results) {
  try {
    const ms_ext::OutsideInferenceMode outside_inference_mode;
    const ms_ext::LeavesNoPython leaves_no_python;  // a module's own backward may be in Python
    const Tensors leaves = unpacked(inputs, input_count);
    refuse_hooks_of_sums(leaves);
    const Tensors roots = unpacked(outputs, output_count);
    Tensors given = ms_ext::tensors_on(output_gradients, output_count);
    // Hooks of checkpoints, and what a backward in Python asks of the engine, need the engine.
    Tensors found = is_torch_code ? ms_ext::differentiate_recorded(leaves, wanted, roots, std::move(given))
                                  : ms_ext::differentiate(leaves, wanted, roots, std::move(given));
    ms_ext::give(std::move(found), results);
    return true;
  } catch (...) {
    const pybind11::gil_scoped_acquire gil;
    torch::translate_exception_to_python(std::current_exception());
    return false;
  }
}

}  // extern "C"

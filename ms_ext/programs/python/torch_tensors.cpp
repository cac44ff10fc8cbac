#include "programs/python/torch_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ms_ext.h"

namespace {

using ms_ext::TensorMemory;

// The dtypes that MindSpore has too, by the names that both have.
const char *name_of(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return "float32";
    case c10::kDouble:
      return "float64";
    case c10::kHalf:
      return "float16";
    case c10::kBFloat16:
      return "bfloat16";
    case c10::kLong:
      return "int64";
    case c10::kInt:
      return "int32";
    case c10::kShort:
      return "int16";
    case c10::kChar:
      return "int8";
    case c10::kByte:
      return "uint8";
    case c10::kBool:
      return "bool";
    case c10::kComplexFloat:
      return "complex64";
    case c10::kComplexDouble:
      return "complex128";
    case c10::kUInt16:
      return "uint16";
    case c10::kUInt32:
      return "uint32";
    case c10::kUInt64:
      return "uint64";
    default:
      return nullptr;
  }
}

at::Tensor tensor_on(const TensorMemory &memory) {
  const c10::Device device =
      memory.gpu < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(memory.gpu));
  at::Tensor tensor = ms_ext::view(memory.data, static_cast<int>(memory.ndim), memory.shape, memory.dtype, device);
  if (memory.strides != nullptr) {
    const at::IntArrayRef sizes(memory.shape, memory.ndim);
    const at::IntArrayRef strides(memory.strides, memory.ndim);
    const auto bytes = at::detail::computeStorageNbytes(sizes, strides, tensor.element_size());
    tensor.storage().unsafeGetStorageImpl()->set_nbytes(bytes);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  }
  if (memory.release != nullptr) {
    tensor.storage().set_data_ptr_noswap(c10::DataPtr(memory.data, memory.owner, memory.release, device));
  }
  return tensor;
}

void release(void *owner) { delete static_cast<at::Tensor *>(owner); }

// Whether the tensor is all that its memory holds, and nobody else uses that.
bool is_alone(const at::Tensor &tensor) {
  return tensor.is_contiguous() && tensor.storage().use_count() == 1 && tensor.nbytes() == tensor.storage().nbytes();
}

TensorMemory memory_of(const at::Tensor &tensor) {
  const char *dtype = name_of(tensor.scalar_type());
  if (dtype == nullptr) {
    throw std::runtime_error(std::string("MindSpore has no dtype for PyTorch's ") +
                             c10::toString(tensor.scalar_type()));
  }
  auto *held = new at::Tensor(tensor);
  const at::IntArrayRef sizes = held->sizes();
  TensorMemory memory;
  memory.data = held->numel() == 0 ? nullptr : held->data_ptr();
  memory.shape = sizes.data();
  memory.ndim = sizes.size();
  memory.dtype = dtype;
  memory.gpu = held->is_cpu() ? -1 : held->device().index();
  memory.owner = held;
  memory.release = release;
  return memory;
}

// Contiguous, with nothing left to be done when its elements are read.
at::Tensor plain(const at::Tensor &tensor) {
  if (tensor.layout() != c10::kStrided || tensor.is_quantized() || tensor.is_nested()) {
    throw std::runtime_error("MindSpore has no tensors like this one of PyTorch's: " + tensor.toString());
  }
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

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

void differentiate(PyObject *const *inputs, const bool *wanted, size_t input_count, PyObject *const *outputs,
                   const TensorMemory *output_gradients, size_t output_count, TensorMemory *results) {
  torch::autograd::variable_list roots, gradients, leaves;
  for (size_t i = 0; i < output_count; ++i) {
    if (output_gradients[i].dtype == nullptr) continue;
    roots.push_back(THPVariable_Unpack(outputs[i]));
    gradients.push_back(tensor_on(output_gradients[i]));
  }
  for (size_t i = 0; i < input_count; ++i) {
    if (wanted[i]) leaves.push_back(THPVariable_Unpack(inputs[i]));
  }
  auto found = torch::autograd::grad(roots, leaves, gradients, /*retain_graph=*/false, /*create_graph=*/false,
                                     /*allow_unused=*/true);
  gradients.clear();  // a gradient that is one of these is not alone
  for (size_t i = 0, next = 0; i < input_count; ++i) {
    if (!wanted[i]) continue;
    at::Tensor gradient = std::move(found[next++]);
    if (!gradient.defined()) continue;
    gradient = plain(gradient.is_sparse() ? gradient.to_dense() : gradient);
    results[i] = memory_of(is_alone(gradient) ? gradient : gradient.clone(at::MemoryFormat::Contiguous));
  }
}

}  // namespace

extern "C" {

PyObject *ms_ext_to_torch(const TensorMemory *memory, ms_ext::Gradient gradient, PyObject **leaf) {
  PyObject *result = nullptr;
  succeeds([&] {
    at::Tensor tensor = tensor_on(*memory);
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

bool ms_ext_from_torch(PyObject *tensor, TensorMemory *memory) {
  return succeeds([&] { *memory = memory_of(plain(THPVariable_Unpack(tensor))); });
}

const void *ms_ext_torch_address(PyObject *tensor) { return THPVariable_Unpack(tensor).const_data_ptr(); }

bool ms_ext_torch_requires_grad(PyObject *tensor) { return THPVariable_Unpack(tensor).requires_grad(); }

uint32_t ms_ext_torch_version(PyObject *tensor) { return THPVariable_Unpack(tensor)._version(); }

void ms_ext_torch_written(PyObject *tensor) { THPVariable_Unpack(tensor).unsafeGetTensorImpl()->bump_version(); }

bool ms_ext_torch_set_data(PyObject *tensor, const TensorMemory *memory) {
  return succeeds([&] { THPVariable_Unpack(tensor).set_data(tensor_on(*memory)); });
}

bool ms_ext_torch_set_requires_grad(PyObject *tensor, bool requires_grad) {
  return succeeds([&] { THPVariable_Unpack(tensor).set_requires_grad(requires_grad); });
}

bool ms_ext_torch_record(bool enabled) {
  const bool before = c10::GradMode::is_enabled();
  c10::GradMode::set_enabled(enabled);
  return before;
}

bool ms_ext_differentiate(PyObject *const *inputs, const bool *wanted, size_t input_count, PyObject *const *outputs,
                          const TensorMemory *output_gradients, size_t output_count, TensorMemory *results) {
  try {
    differentiate(inputs, wanted, input_count, outputs, output_gradients, output_count, results);
    return true;
  } catch (...) {
    const pybind11::gil_scoped_acquire gil;
    torch::translate_exception_to_python(std::current_exception());
    return false;
  }
}

}  // extern "C"

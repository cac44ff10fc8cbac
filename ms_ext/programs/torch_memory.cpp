#include "programs/torch_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "mindspore/dtypes.h"
#include "ms_ext.h"

namespace ms_ext {
namespace {

// The dtypes that MindSpore has too, by the names that both have.
const char *name_of(c10::ScalarType type) {
#define MS_EXT_NAME_OF(name, id, scalar_type, size) \
  if (type == c10::k##scalar_type) return name;
  MS_EXT_DTYPES(MS_EXT_NAME_OF)
#undef MS_EXT_NAME_OF
  return nullptr;
}

void release(void *owner) { delete static_cast<at::Tensor *>(owner); }

// Whether the tensor is all that its memory holds, and nobody else uses that.
bool is_alone(const at::Tensor &tensor) {
  return tensor.is_contiguous() && tensor.storage().use_count() == 1 && tensor.nbytes() == tensor.storage().nbytes();
}

}  // namespace

at::Tensor tensor_on(const TensorMemory &memory) {
  const c10::Device device =
      memory.gpu < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(memory.gpu));
  at::Tensor tensor = view(memory.data, static_cast<int>(memory.ndim), memory.shape, memory.dtype, device);
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

TensorMemory memory_of(const at::Tensor &tensor) {
  const char *dtype = name_of(tensor.scalar_type());
  if (dtype == nullptr) {
    throw std::runtime_error(std::string("MindSpore has no dtype for PyTorch's ") +
                             c10::toString(tensor.scalar_type()));
  }
  if (!tensor.is_cpu() && !tensor.is_cuda()) {
    throw std::runtime_error("MindSpore has no tensors on PyTorch's device " + tensor.device().str());
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

at::Tensor plain(const at::Tensor &tensor) {
  if (tensor.layout() != c10::kStrided || tensor.is_quantized() || tensor.is_nested()) {
    throw std::runtime_error("MindSpore has no tensors like this one of PyTorch's: " + tensor.toString());
  }
  if (tensor._is_zerotensor()) return at::zeros(tensor.sizes(), tensor.options());  // which has no memory
  const at::Tensor data(tensor.variable_data());  // detach(), but for a call through the dispatcher
  return (data.is_conj() || data.is_neg() ? data.resolve_conj().resolve_neg() : data).contiguous();
}

std::vector<at::Tensor> tensors_on(const TensorMemory *memories, size_t count) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    tensors.push_back(memories[i].dtype == nullptr ? at::Tensor() : tensor_on(memories[i]));
  }
  return tensors;
}

namespace {

// What a module's own backward adds to the `grad` of leaves, as one does that calls `backward` itself: reversible
// layers, say. At the end they have what they had before.
class AddedToLeaves {
 public:
  // Args: where gradients are found, which need not be leaves all.
  explicit AddedToLeaves(const std::vector<at::Tensor> &tensors) : tensors_(tensors), before_(tensors.size()) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].is_leaf()) continue;
      before_[i] = tensors_[i].grad();
      if (before_[i].defined()) tensors_[i].mutable_grad().reset();
    }
  }

  ~AddedToLeaves() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (before_[i].defined() || has_grad(tensors_[i])) tensors_[i].mutable_grad() = before_[i];
    }
  }

  AddedToLeaves(const AddedToLeaves &) = delete;
  AddedToLeaves &operator=(const AddedToLeaves &) = delete;

  void add_to(std::vector<at::Tensor> *gradients, bool create_graph) const {
    const c10::AutoGradMode recording(create_graph);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!has_grad(tensors_[i])) continue;
      const at::Tensor &found = tensors_[i].grad();
      (*gradients)[i] = (*gradients)[i].defined() ? at::add(found, (*gradients)[i]) : found;
    }
  }

 private:
  static bool has_grad(const at::Tensor &tensor) { return tensor.is_leaf() && tensor.grad().defined(); }

  const std::vector<at::Tensor> &tensors_;
  std::vector<at::Tensor> before_;
};

}  // namespace

std::vector<at::Tensor> differentiate(const std::vector<at::Tensor> &inputs, const bool *wanted,
                                      const std::vector<at::Tensor> &outputs, std::vector<at::Tensor> gradients,
                                      bool create_graph) {
  std::vector<at::Tensor> roots, given, leaves, results(inputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    given.push_back(std::move(gradients[i]));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (wanted[i] && inputs[i].requires_grad()) leaves.push_back(inputs[i]);
  }
  if (roots.empty() || leaves.empty()) return results;
  // PyTorch's backward passes are outside of `torch.autocast`.
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  const AddedToLeaves added(leaves);
  auto found = torch::autograd::grad(roots, leaves, given, /*retain_graph=*/create_graph, create_graph,
                                     /*allow_unused=*/true);
  added.add_to(&found, create_graph);
  for (size_t i = 0, next = 0; i < inputs.size(); ++i) {
    if (wanted[i] && inputs[i].requires_grad()) results[i] = std::move(found[next++]);
  }
  return results;
}

void give(std::vector<at::Tensor> gradients, TensorMemory *results) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor gradient = std::move(gradients[i]);
    if (!gradient.defined()) continue;
    gradient = plain(gradient.is_sparse() ? gradient.to_dense() : gradient);
    results[i] = memory_of(is_alone(gradient) ? gradient : gradient.clone(at::MemoryFormat::Contiguous));
  }
}

}  // namespace ms_ext

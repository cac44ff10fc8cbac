// MindSpore's tensors on memory of PyTorch's, and the reverse.
#pragma once

#include <memory>
#include <stdexcept>

#include "function_of.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "ir/tensor.h"
#include "mindspore/python/dtype.h"
#include "programs/memory.h"

namespace ms_ext::pynative {

using mindspore::tensor::TensorPtr;

inline void *data_of(const TensorPtr &tensor) {
  if (tensor->DataSize() == 0) return nullptr;
  const auto &address = tensor->device_address();
  auto *data = address == nullptr ? nullptr : static_cast<char *>(address->GetMutablePtr());
  if (data == nullptr) {
    throw std::runtime_error("a tensor has an initializer that has not run: call its init_data() first");
  }
  return data + tensor->storage_offset() * tensor->DataItemSize();
}

// Keeps the memory of a tensor of MindSpore's.
class Owner {
 public:
  static TensorMemory memory_of(const TensorPtr &tensor, int gpu) {
    const auto *dtype = find(tensor->data_type());
    if (dtype == nullptr) {
      throw py::type_error("PyTorch has no dtype for MindSpore's " + mindspore::TypeIdToString(tensor->data_type()));
    }
    TensorMemory memory;
    memory.data = data_of(tensor);
    memory.dtype = dtype->name;
    memory.gpu = gpu;
    auto *owner = new Owner(tensor);
    memory.shape = owner->shape_.data();
    memory.ndim = owner->shape_.size();
    if (!owner->strides_.empty()) memory.strides = owner->strides_.data();
    memory.owner = owner;
    memory.release = [](void *object) { delete static_cast<Owner *>(object); };
    return memory;
  }

 private:
  explicit Owner(const TensorPtr &tensor) : shape_(tensor->shape()), address_(tensor->device_address()) {
    if (!tensor->is_contiguous()) strides_ = tensor->stride();
  }

  ShapeVector shape_;
  ShapeVector strides_;  // empty if contiguous
  mindspore::device::DeviceAddressPtr address_;
};

// A tensor of MindSpore's on memory of PyTorch's, which it releases.
inline TensorPtr tensor_on(const TensorMemory &memory, uint32_t stream_id) {
  using mindspore::device::DeviceAddress;
  using mindspore::device::DeviceType;
  const std::shared_ptr<void> owner(memory.owner, memory.release);
  const auto dtype = id_of(memory.dtype);
  const ShapeVector shape(memory.shape, memory.shape + memory.ndim);
  size_t bytes = find(dtype)->size;
  for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
  const auto type = memory.gpu < 0 ? DeviceType::kCPU : DeviceType::kGPU;
  auto address = std::make_shared<DeviceAddress>(memory.data, bytes, type, stream_id);
  address->SetDevicePointerDeleter([owner](void *, bool) {});
  return std::make_shared<mindspore::tensor::Tensor>(dtype, shape, address);
}

}  // namespace ms_ext::pynative

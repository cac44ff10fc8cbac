#include "ms_ext.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "mindspore/dtypes.h"

namespace ms_ext {
namespace {

struct NamedType {
  std::string_view name;
  c10::ScalarType type;
};

#define MS_EXT_NAMED(name, id, type, size) {name, c10::k##type},
constexpr NamedType kTypes[] = {MS_EXT_DTYPES(MS_EXT_NAMED)};
#undef MS_EXT_NAMED

// MindSpore's other names for some of them: float8 without the underscore.
constexpr NamedType kMoreTypes[] = {
    {"float", c10::kFloat},
    {"int", c10::kInt},
    {"uint", c10::kUInt32},
    {"float8e4m3fn", c10::kFloat8_e4m3fn},
    {"float8e5m2", c10::kFloat8_e5m2},
};

#define MS_EXT_SAME_SIZE(name, id, type, size) \
  static_assert(sizeof(c10::impl::ScalarTypeToCPPTypeT<c10::k##type>) == size);
MS_EXT_DTYPES(MS_EXT_SAME_SIZE)
#undef MS_EXT_SAME_SIZE

}  // namespace

c10::ScalarType scalar_type(const char *name) {
  for (const auto &entry : kTypes) {
    if (entry.name == name) return entry.type;
  }
  for (const auto &entry : kMoreTypes) {
    if (entry.name == name) return entry.type;
  }
  throw std::invalid_argument("ATen has no dtype for MindSpore's '" + std::string(name) + "'");
}

at::Tensor view(void *data, int ndim, const int64_t *shape, const char *dtype, c10::Device device) {
  const at::IntArrayRef sizes(shape, static_cast<size_t>(ndim));
  const c10::ScalarType type = scalar_type(dtype);
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  // What at::from_blob does, but for its checks, which cost more than the rest.
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       c10::DataPtr(data, device), nullptr, /*resizable=*/false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA,
      c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

}  // namespace ms_ext

std::vector<at::Tensor> get_torch_tensors(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
                                          c10::Device device) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(static_cast<size_t>(nparam));
  for (int i = 0; i < nparam; ++i) {
    tensors.push_back(ms_ext::view(params[i], ndims[i], shapes[i], dtypes[i], device));
  }
  return tensors;
}

void output_memcpy(void *output, const at::Tensor &result) {
  if (result.numel() > 0) at::from_blob(output, result.sizes(), result.options()).copy_(result);
}

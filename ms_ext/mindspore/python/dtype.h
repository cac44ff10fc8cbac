// What a call in PyNative mode knows of a dtype.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "ir/dtype/type_id.h"
#include "mindspore/dtypes.h"

namespace ms_ext {

struct DType {
  mindspore::TypeId id;
  const char *name;
  size_t size;
};

#define MS_EXT_DTYPE(name, id, type, size) DType{mindspore::TypeId::kNumberType##id, name, size},
inline constexpr std::array kDTypes = {MS_EXT_DTYPES(MS_EXT_DTYPE)};
#undef MS_EXT_DTYPE

// Null for a dtype that is not in the table.
inline const DType *find(mindspore::TypeId id) {
  for (const DType &dtype : kDTypes) {
    if (dtype.id == id) return &dtype;
  }
  return nullptr;
}

inline mindspore::TypeId id_of(const std::string &name) {
  for (const DType &dtype : kDTypes) {
    if (name == dtype.name) return dtype.id;
  }
  return mindspore::TypeId::kTypeUnknown;
}

}  // namespace ms_ext

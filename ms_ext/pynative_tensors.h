// What every file needs that works on MindSpore's tensors in PyNative mode. For those that are compiled with
// MindSpore's headers.
#pragma once

#include <array>
#include <string>
#include <thread>

#include "actor/actormgr.h"
#include "include/runtime/pipeline/pipeline.h"
#include "mindapi/base/type_id.h"

namespace ms_ext {

struct DType {
  mindspore::TypeId id;
  const char *name;
  size_t size;
};

// MindSpore's names, which get_torch_tensors and bridge/dtypes.py read.
inline constexpr std::array kDTypes = {
    DType{mindspore::TypeId::kNumberTypeBool, "bool", 1},
    DType{mindspore::TypeId::kNumberTypeInt8, "int8", 1},
    DType{mindspore::TypeId::kNumberTypeInt16, "int16", 2},
    DType{mindspore::TypeId::kNumberTypeInt32, "int32", 4},
    DType{mindspore::TypeId::kNumberTypeInt64, "int64", 8},
    DType{mindspore::TypeId::kNumberTypeUInt8, "uint8", 1},
    DType{mindspore::TypeId::kNumberTypeUInt16, "uint16", 2},
    DType{mindspore::TypeId::kNumberTypeUInt32, "uint32", 4},
    DType{mindspore::TypeId::kNumberTypeUInt64, "uint64", 8},
    DType{mindspore::TypeId::kNumberTypeFloat16, "float16", 2},
    DType{mindspore::TypeId::kNumberTypeBFloat16, "bfloat16", 2},
    DType{mindspore::TypeId::kNumberTypeFloat32, "float32", 4},
    DType{mindspore::TypeId::kNumberTypeFloat64, "float64", 8},
    DType{mindspore::TypeId::kNumberTypeComplex64, "complex64", 8},
    DType{mindspore::TypeId::kNumberTypeComplex128, "complex128", 16},
};

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

template <typename Queue>
void wait_for_queue(const Queue &queue) {
  if (queue->CanPush()) {  // not on a thread that is itself behind that queue
    // Wait() spins without a pause, and so may keep the other thread from the core that it needs.
    while (!queue->Empty()) std::this_thread::yield();
  }
  queue->Wait();  // throws what failed there
}

// Until MindSpore's own operators, which one thread takes up and another runs, have been taken up; with `run`, until
// they have run on a CPU, and been launched on a GPU. Called without the GIL, which they may need.
inline void wait_for_mindspore(bool run) {
  const auto &pipeline = mindspore::runtime::Pipeline::Get();
  wait_for_queue(pipeline.frontend_stage());
  if (!run) return;
  wait_for_queue(pipeline.backend_stage());
  // After each part of an operator of MindSpore's, its threads for kernels look 300,000 times for another before they
  // sleep, and keep a core from PyTorch's threads meanwhile. MindSpore does this after each graph.
  auto *threads = mindspore::ActorMgr::GetActorMgrRef()->GetActorThreadPool();
  if (threads != nullptr) threads->SetSpinCountMinValue();
}

}  // namespace ms_ext

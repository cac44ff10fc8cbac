// The memory that MindSpore keeps for its own on a CPU.
#pragma once

#include <cstddef>

#include "include/runtime/hardware_abstract/device_context/device_context.h"
#include "include/runtime/hardware_abstract/device_context/device_context_manager.h"

namespace ms_ext::pynative {

inline const mindspore::device::DeviceResManager &host() {
  static const auto *const manager =
      mindspore::device::DeviceContextManager::GetInstance()
          .GetOrCreateDeviceContext(mindspore::device::DeviceContextKey{mindspore::device::DeviceType::kCPU, 0})
          ->device_res_manager_.get();
  return *manager;
}

inline void *allocate_on_host(size_t size) { return host().AllocateMemory(size); }

inline void release_on_host(void *data) { host().FreeMemory(data); }

}  // namespace ms_ext::pynative

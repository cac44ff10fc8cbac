// What backward passes find for the Parameters of modules, for optimizers (bridge/optim/left_out.py).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "ir/tensor.h"

namespace ms_ext::pynative {

// Since an optimizer last asked. Backward passes run on threads of MindSpore's.
struct Received {
  std::atomic<bool> gradient = false, nothing = false;
};

// Those of all modules, by the Parameters' tensors.
class AllReceived {
 public:
  // Never freed, since MindSpore may record while the process ends.
  static AllReceived &get() {
    static auto *const all = new AllReceived;
    return *all;
  }

  void add(const mindspore::tensor::TensorPtr &parameter, std::weak_ptr<Received> received) {
    const std::lock_guard<std::mutex> lock(mutex_);
    of_[parameter.get()] = std::move(received);
  }

  void remove(const void *parameter) {
    const std::lock_guard<std::mutex> lock(mutex_);
    of_.erase(parameter);
  }

  // Null for a tensor that is no module's Parameter.
  std::shared_ptr<Received> of(const mindspore::tensor::TensorPtr &tensor) {
    if (tensor->param_info() == nullptr) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = of_.find(tensor.get());
    return found == of_.end() ? nullptr : found->second.lock();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void *, std::weak_ptr<Received>> of_;
};

}  // namespace ms_ext::pynative

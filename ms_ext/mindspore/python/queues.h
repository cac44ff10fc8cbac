// MindSpore's queues, each with a thread that takes what is in it.
#pragma once

#include <thread>

#include "actor/actormgr.h"
#include "include/runtime/pipeline/pipeline.h"
#include "pybind11/pybind11.h"

namespace ms_ext {

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

// The same, until what they launch has been handed to the device. Called without the GIL.
inline void wait_for_launches() {
  wait_for_mindspore(true);
  wait_for_queue(mindspore::runtime::Pipeline::Get().launch_stage());
}

// See bridge/primitive/direct.py.
inline void leave_queues() {
  const pybind11::gil_scoped_release released;  // tasks that wait there may need the GIL
  auto &pipeline = mindspore::runtime::Pipeline::Get();
  pipeline.WaitAll();
  pipeline.DisablePipeline();
}

}  // namespace ms_ext

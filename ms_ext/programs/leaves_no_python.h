// Python on a thread of MindSpore's, which ends while MindSpore holds the GIL and waits for it.
#pragma once

#include <ATen/ThreadLocalPythonObjects.h>
#include <torch/csrc/autograd/engine.h>

#include <memory>
#include <utility>

namespace ms_ext {

// What runs while this lives leaves no object of Python's with the thread. torch.autograd.grad does, and what is left
// of a backward that failed, and the end of the thread would want the GIL to free it.
class LeavesNoPython {
 public:
  LeavesNoPython() : before_(at::impl::ThreadLocalPythonObjects::get_state()) {}
  ~LeavesNoPython() {
    at::impl::ThreadLocalPythonObjects::set_state(std::move(before_));
    if (torch::autograd::get_current_graph_task_id() < 0) Engine::forget_queue();  // else a backward goes on after this
  }
  LeavesNoPython(const LeavesNoPython &) = delete;
  LeavesNoPython &operator=(const LeavesNoPython &) = delete;

 private:
  // PyTorch's engine keeps the nodes that a backward had still to run with the thread.
  struct Engine : torch::autograd::Engine {
    static void forget_queue() {
      (torch::autograd::Engine::get_default_engine().*
       &Engine::init_local_ready_queue)(std::make_shared<torch::autograd::ReadyQueue>());
    }
  };

  at::impl::ThreadLocalPythonObjects before_;
};

}  // namespace ms_ext

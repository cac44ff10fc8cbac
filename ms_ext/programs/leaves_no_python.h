// Python on a thread of MindSpore's, which ends while MindSpore holds the GIL and waits for it.
#pragma once

#include <ATen/ThreadLocalPythonObjects.h>

#include <utility>

namespace ms_ext {

// What runs while this lives leaves no object of Python's with the thread. torch.autograd.grad does, and the end of the
// thread would want the GIL to free it.
class LeavesNoPython {
 public:
  LeavesNoPython() : before_(at::impl::ThreadLocalPythonObjects::get_state()) {}
  ~LeavesNoPython() { at::impl::ThreadLocalPythonObjects::set_state(std::move(before_)); }
  LeavesNoPython(const LeavesNoPython &) = delete;
  LeavesNoPython &operator=(const LeavesNoPython &) = delete;

 private:
  at::impl::ThreadLocalPythonObjects before_;
};

}  // namespace ms_ext

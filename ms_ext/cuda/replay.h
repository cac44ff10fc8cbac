// A program on a GPU as a CUDA graph: what it launches is recorded once, and launched as a whole from then on.
//
// A CUDA graph has the addresses of its tensors in it. In a graph of MindSpore's a kernel meets the same ones in each
// step, except for what Python holds: that is recorded elsewhere, and copied.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <vector>

namespace at::cuda {
struct CUDAGraph;
}

namespace ms_ext {

class Call;
class Program;

// The recording of one kernel.
class Replay {
 public:
  Replay();
  ~Replay();

  // Runs the program on the current stream, for the first `results`: a few times call by call, and then as recorded.
  void run(const Program &program, size_t results, Call &c);

 private:
  // A tensor that stands in the recording for an input or output of the kernel.
  struct StandIn {
    size_t position;
    at::Tensor tensor;
  };

  void begin_anew(size_t results);
  bool is_at_hand() const;
  void look_at_addresses(const Call &c);
  bool has_stand_in(const Program &program, const Call &c, size_t i) const;
  void record(const Program &program, Call &c);
  void replay(Call &c) const;

  std::mutex mutex_;  // kernels are launched by several threads
  enum { kUnknown, kRecordable, kNotRecordable } kind_ = kUnknown;
  size_t results_ = 0;
  std::vector<const void *> addresses_;  // of the last launch, without those of outputs that nobody wants
  std::vector<int> changes_;             // how often each has changed, its first one included
  std::unique_ptr<at::cuda::CUDAGraph> recording_;
  std::vector<const void *> recorded_;  // the addresses in it; null for what has a stand-in
  std::vector<StandIn> stand_ins_;
  int recordings_ = 0;
};

}  // namespace ms_ext

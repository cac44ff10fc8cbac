// A program on a GPU as a CUDA graph: what it launches is recorded once, and launched as a whole from then on.
//
// A CUDA graph has the addresses of its tensors in it. In a graph of MindSpore's a kernel meets few different ones:
// MindSpore's memory comes back in the same order, or in a few orders by turns. Each is recorded. What Python holds may
// be anywhere: that is recorded elsewhere, and copied.
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

// The recordings of one kernel.
class Replay {
 public:
  Replay();
  ~Replay();

  // Runs the program on the current stream, for the first `results`: twice call by call, and then as recorded.
  void run(const Program &program, size_t results, Call &c);

 private:
  using Addresses = std::vector<const void *>;

  // A tensor that stands in a recording for an input or output of the kernel.
  struct StandIn {
    size_t position;
    at::Tensor tensor;
  };

  struct Recording {
    bool is_of(const Addresses &others) const;
    void launch(Call &c) const;

    std::unique_ptr<at::cuda::CUDAGraph> graph;
    Addresses addresses;  // null for what has a stand-in
    std::vector<StandIn> stand_ins;
  };

  void begin_anew(size_t results);
  Addresses addresses_of(const Call &c) const;
  void forget_recordings();
  std::unique_ptr<Recording> record(const Program &program, const Addresses &addresses, Call &c) const;
  const Recording *recording_of(const Program &program, Call &c);

  std::mutex mutex_;  // kernels are launched by several threads
  enum { kNew, kUnknown, kRecordable, kNotRecordable } kind_ = kNew;
  size_t results_ = 0;
  std::vector<std::unique_ptr<Recording>> recordings_;
  size_t forgotten_ = 0;            // how often all recordings were
  std::vector<bool> has_stand_in_;  // in the recordings to come
};

}  // namespace ms_ext

// CUDA kernels of the bridge's own, which need no nvcc: the NVRTC that PyTorch brings compiles each for the GPU that it
// first runs on. So they have the compiler and the mathematical functions of PyTorch's kernels.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ms_ext {

class DeviceCode {
 public:
  // The source of a kernel that is `extern "C"` under `name`, and macros for it: "STEPS=4".
  DeviceCode(const char *name, std::string source, std::vector<std::string> macros = {})
      : name_(name), source_(std::move(source)), macros_(std::move(macros)) {}

  // Launches on the current device and stream. Returns false where the NVRTC at hand does not know the GPU; throws
  // c10::Error if compiling or launching fails.
  template <typename... Arguments>
  bool launch(int64_t blocks, int threads, Arguments... arguments) {
    void *pointers[] = {&arguments...};
    return run(blocks, threads, pointers);
  }

 private:
  bool run(int64_t blocks, int threads, void **arguments);
  void *compile(int device) const;

  const char *name_;
  std::string source_;
  std::vector<std::string> macros_;
  std::mutex mutex_;
  std::map<int, void *> functions_;  // of each device; null where there is none
};

}  // namespace ms_ext

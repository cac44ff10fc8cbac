#include <ATen/DynamicLibrary.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include "cuda/device_code.h"

namespace ms_ext {
namespace {

// The functions of NVRTC and of the CUDA driver. PyTorch's headers do not declare them, and NVRTC's own stand in a
// package apart; their C interfaces do not change.
class Compiler {
 public:
  using Program = void *;

  static const Compiler &get() {
    static const Compiler instance;
    return instance;
  }

  int (*create)(Program *, const char *source, const char *name, int, const char *const *, const char *const *);
  int (*compile)(Program, int options, const char *const *);
  int (*log_size)(Program, size_t *);
  int (*log)(Program, char *);
  int (*cubin_size)(Program, size_t *);
  int (*cubin)(Program, char *);
  int (*destroy)(Program *);
  int (*get_context)(void **context);
  int (*load_module)(void **module, const void *image);
  int (*get_function)(void **function, void *module, const char *name);
  int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared_memory,
                void *stream, void **arguments, void **extra);

 private:
  // PyTorch opens this library when it compiles a kernel itself; it has nothing but what it is linked with.
  Compiler() : library_("libcaffe2_nvrtc.so", nullptr, /*leak_handle=*/true) {
    find(create, "nvrtcCreateProgram");
    find(compile, "nvrtcCompileProgram");
    find(log_size, "nvrtcGetProgramLogSize");
    find(log, "nvrtcGetProgramLog");
    find(cubin_size, "nvrtcGetCUBINSize");
    find(cubin, "nvrtcGetCUBIN");
    find(destroy, "nvrtcDestroyProgram");
    find(get_context, "cuCtxGetCurrent");
    find(load_module, "cuModuleLoadData");
    find(get_function, "cuModuleGetFunction");
    find(launch, "cuLaunchKernel");
  }

  template <typename Function>
  void find(Function &function, const char *name) {
    function = reinterpret_cast<Function>(library_.sym(name));
  }

  at::DynamicLibrary library_;
};

constexpr int kInvalidOption = 5;  // nvrtcResult: NVRTC_ERROR_INVALID_OPTION

void check(int status, const char *what) { TORCH_CHECK(status == 0, what, " failed with status ", status); }

}  // namespace

void *DeviceCode::compile(int device) const {
  int major = 0, minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  std::vector<std::string> options = {"--std=c++17", c10::str("--gpu-architecture=sm_", major, minor)};
  for (const std::string &macro : macros_) options.push_back("-D" + macro);
  std::vector<const char *> passed;
  for (const std::string &option : options) passed.push_back(option.c_str());

  const Compiler &compiler = Compiler::get();
  Compiler::Program program = nullptr;
  check(compiler.create(&program, source_.c_str(), name_, 0, nullptr, nullptr), "nvrtcCreateProgram");
  const int status = compiler.compile(program, static_cast<int>(passed.size()), passed.data());
  size_t size = 0;
  void *function = nullptr;
  if (status == 0) {
    check(compiler.cubin_size(program, &size), "nvrtcGetCUBINSize");
    std::string cubin(size, '\0');
    check(compiler.cubin(program, cubin.data()), "nvrtcGetCUBIN");
    void *module = nullptr;
    check(compiler.load_module(&module, cubin.data()), "cuModuleLoadData");
    check(compiler.get_function(&function, module, name_), "cuModuleGetFunction");
  } else if (status != kInvalidOption) {
    compiler.log_size(program, &size);
    std::string log(size, '\0');
    compiler.log(program, log.data());
    TORCH_CHECK(false, "compiling the CUDA kernel ", name_, ": ", log);
  }
  compiler.destroy(&program);
  return function;
}

bool DeviceCode::run(int64_t blocks, int threads, void **arguments) {
  void *context = nullptr;
  check(Compiler::get().get_context(&context), "cuCtxGetCurrent");
  if (context == nullptr) C10_CUDA_CHECK(cudaFree(nullptr));  // what the runtime does for a thread, the driver does not
  const int device = c10::cuda::current_device();
  void *function = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = functions_.find(device);
    function = found != functions_.end() ? found->second : functions_.emplace(device, compile(device)).first->second;
  }
  if (function == nullptr) return false;
  const int status = Compiler::get().launch(function, static_cast<unsigned>(blocks), 1, 1, threads, 1, 1, 0,
                                            c10::cuda::getCurrentCUDAStream(device).stream(), arguments, nullptr);
  check(status, name_);
  return true;
}

}  // namespace ms_ext

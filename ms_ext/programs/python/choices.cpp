// What PyTorch chooses its kernels by, besides their arguments, and whether it looks for the cause of nan.
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <cstdint>

extern "C" {

// As a number (bridge/programs/choices.py): what a process has set, and `torch.autocast` on this thread.
uint64_t ms_ext_choices(bool on_gpu) {
  const at::Context &context = at::globalContext();
  const c10::DeviceType device = on_gpu ? c10::kCUDA : c10::kCPU;
  const auto cast_to = at::autocast::is_autocast_enabled(device)
                           ? 1 + static_cast<uint64_t>(at::autocast::get_autocast_dtype(device))
                           : 0;
  uint64_t found = cast_to << 8 | static_cast<uint64_t>(c10::get_default_dtype_as_scalartype());
  for (const bool is_set :
       {at::autocast::is_autocast_cache_enabled(), torch::autograd::AnomalyMode::is_enabled(),
        context.deterministicAlgorithms(), context.userEnabledMkldnn(), context.userEnabledCuDNN(),
        context.deterministicCuDNN(), context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(),
        context.userEnabledMathSDP(), context.userEnabledCuDNNSDP()}) {
    found = found << 1 | static_cast<uint64_t>(is_set);
  }
  if (!on_gpu)
    return found;  // kernels there read the rest when they run, and those of a CUDA graph have read it before
  using at::Float32Op;
  for (const Float32Op op : {Float32Op::MATMUL, Float32Op::CONV, Float32Op::RNN}) {
    found = found << 3 | static_cast<uint64_t>(context.float32Precision(at::Float32Backend::CUDA, op));
  }
  found = found << 3 | static_cast<uint64_t>(context.allowFP16ReductionCuBLAS());
  found = found << 3 | static_cast<uint64_t>(context.allowBF16ReductionCuBLAS());
  return found << 1 | static_cast<uint64_t>(context.benchmarkCuDNN());
}

}  // extern "C"

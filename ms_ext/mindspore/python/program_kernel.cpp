// Graph mode's kernel of a program on the CPU: it frees inputs as the program has used them, and gives outputs their
// memory as the program makes them. MindSpore's kernel for a Custom primitive has all of both from before the launch to
// its end.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "include/runtime/hardware_abstract/device_context/device_context.h"
#include "include/runtime/hardware_abstract/device_context/device_context_manager.h"
#include "include/runtime/hardware_abstract/kernel_base/ms_factory.h"
#include "kernel/cpu/cpu_kernel.h"
#include "mindspore/aot_extra_layout.h"
#include "mindspore/python/memory.h"
#include "programs/pool_memory.h"

namespace {

using mindspore::kernel::KernelTensor;
using ProgramTensors = std::vector<KernelTensor *>;
using InitProgram = int(int *ndims, int64_t **shapes, const char **dtypes, void *extra);

const mindspore::device::DeviceResManager &cpu() {
  static const auto *device =
      mindspore::device::DeviceContextManager::GetInstance()
          .GetOrCreateDeviceContext(mindspore::device::DeviceContextKey{mindspore::device::DeviceType::kCPU, 0})
          ->device_res_manager_.get();
  return *device;
}

// Whether MindSpore frees a tensor's memory after this launch, and has it only there.
bool ends_here(const KernelTensor &tensor) {
  const auto &pointer = tensor.device_pointer();
  return tensor.new_ref_count() == 1 && !tensor.is_ptr_persisted() && pointer.use_count() == 1 &&
         pointer->from_mem_pool() && pointer->allocator() == nullptr;
}

class ProgramKernel final : public mindspore::kernel::NativeCpuKernelMod {
 public:
  bool Init(const ProgramTensors &, const ProgramTensors &) override {
    static auto *const init = ms_ext::pynative::function_of<InitProgram>("libaten_cpu.so", "aten_programInit");
    extra_ = std::make_unique<ms_ext::Extra>(attribute("aten_op"), attribute("aten_args"));
    init(nullptr, nullptr, nullptr, extra_.get());
    return true;
  }

  bool Launch(const ProgramTensors &inputs, const ProgramTensors &, const ProgramTensors &outputs) override {
    static auto *const launch =
        ms_ext::pynative::function_of<std::remove_pointer_t<ms_ext::LaunchProgram>>("libaten_cpu.so", "ms_ext_launch_program");
    OneLaunch tensors{inputs, outputs};
    if (getenv("MEMDBG")) {
      std::map<std::string,int> n;
      for (auto*t: inputs) n[std::to_string(t->new_ref_count()) + " " + std::to_string(t->ref_count())+" pool "+std::to_string(t->device_pointer()->from_mem_pool())+" uses "+std::to_string(t->device_pointer().use_count())+" pers "+std::to_string(t->is_ptr_persisted())]++;
      for (auto*t: outputs) n["out "+std::to_string(t->new_ref_count()) + " " + std::to_string(t->ref_count())+" pool "+std::to_string(t->device_pointer()->from_mem_pool())+" uses "+std::to_string(t->device_pointer().use_count())+" pers "+std::to_string(t->is_ptr_persisted())]++;
      fprintf(stderr, "== %s\n", attribute("aten_op").c_str());
      for (auto&[k,v]: n) fprintf(stderr, "   %s: %d\n", k.c_str(), v);
    }
    std::vector<void *> params;
    std::vector<int> ndims;
    std::vector<int64_t *> shapes;
    std::vector<std::string> names;
    std::vector<const char *> dtypes;
    for (const ProgramTensors *of : {&inputs, &outputs}) {
      for (const KernelTensor *tensor : *of) {
        const mindspore::ShapeVector &shape = tensor->GetShapeVector();
        params.push_back(tensor->device_ptr());
        ndims.push_back(static_cast<int>(shape.size()));
        shapes.push_back(const_cast<int64_t *>(shape.data()));
        names.push_back(mindspore::TypeIdToString(tensor->dtype_id(), true));
      }
    }
    for (const std::string &name : names) dtypes.push_back(name.c_str());
    const ms_ext::PoolMemory memory{allocate, release, &tensors, OneLaunch::take_input, OneLaunch::give_output};
    launch(static_cast<int>(params.size()), params.data(), ndims.data(), shapes.data(), dtypes.data(), extra_.get(),
           &memory);
    return true;
  }

  std::vector<mindspore::kernel::KernelAttr> GetOpSupport() override { return {}; }

 private:
  static void *allocate(size_t size) { return cpu().AllocateMemory(size); }
  static void release(void *data) { cpu().FreeMemory(data); }

  struct OneLaunch {
    OneLaunch(const ProgramTensors &inputs, const ProgramTensors &outputs) : inputs(inputs), outputs(outputs) {
      for (KernelTensor *output : outputs) {
        if (output->size() < 16384 || output->is_ptr_persisted() || !output->device_pointer()->from_mem_pool()) continue;
        cpu().FreeMemory(output->device_address().get());
      }
    }
    // After an error, MindSpore finds outputs that it can free.
    ~OneLaunch() {
      for (KernelTensor *output : outputs) {
        if (output->device_ptr() == nullptr) cpu().AllocateMemory(output->device_address().get());
      }
    }

    static void *take_input(void *launch, size_t input) {
      const auto &inputs = static_cast<OneLaunch *>(launch)->inputs;
      KernelTensor *const tensor = inputs.at(input);
      if (!ends_here(*tensor) || std::count(inputs.begin(), inputs.end(), tensor) > 1) return nullptr;
      void *const data = tensor->device_ptr();
      tensor->device_address()->set_ptr(nullptr);
      return data;
    }

    static void give_output(void *launch, size_t output, void *data) {
      const auto &address = static_cast<OneLaunch *>(launch)->outputs.at(output)->device_address();
      address->set_ptr(data);
      address->set_from_mem_pool(true);
    }

    const ProgramTensors &inputs;
    const ProgramTensors &outputs;
  };

  std::string attribute(const char *name) const { return mindspore::GetValue<std::string>(primitive_->GetAttr(name)); }

  std::unique_ptr<ms_ext::Extra> extra_;
};

const mindspore::kernel::KernelRegistrar<mindspore::kernel::NativeCpuKernelMod> registered_program("aten_program", [] {
  return std::make_shared<ProgramKernel>();
});

}  // namespace

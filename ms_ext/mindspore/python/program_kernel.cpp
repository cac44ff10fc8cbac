// Graph mode's kernel of a program on the CPU. MindSpore's own for a Custom primitive keeps all inputs, and has memory
// for all outputs, from before the launch to its end. This one lets the program free an input after its last use, and
// takes for an output the memory that the program brings.
#include "mindspore/python/program_kernel.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "function_of.h"
#include "include/runtime/hardware_abstract/kernel_base/ms_factory.h"
#include "kernel/cpu/cpu_kernel.h"
#include "mindspore/aot_extra_layout.h"
#include "mindspore/python/dtype.h"
#include "mindspore/python/host_memory.h"
#include "programs/pool_memory.h"

namespace {

using ms_ext::function_of;
using ms_ext::pynative::allocate_on_host;
using ms_ext::pynative::host;
using ms_ext::pynative::release_on_host;
using Tensors = std::vector<mindspore::kernel::KernelTensor *>;

// Whether memory is the pool's, and no other tensor has it.
bool is_own(const mindspore::kernel::KernelTensor &tensor) {
  const auto &pointer = tensor.device_pointer();
  return pointer->from_mem_pool() && pointer->allocator() == nullptr && pointer.use_count() == 1 &&
         !tensor.is_ptr_persisted();
}

// The tensors of one launch.
class Launch {
 public:
  Launch(const Tensors &inputs, const Tensors &outputs) : inputs_(inputs), outputs_(outputs) {
    const auto is_large = [](const auto *output) { return output->size() >= ms_ext::kSmallestInPool; };
    if (std::none_of(outputs.begin(), outputs.end(), is_large)) return;
    for (auto *output : outputs) {
      if (is_own(*output)) host().FreeMemory(output->device_address().get());
    }
  }

  // After an error, outputs have memory as MindSpore left it.
  ~Launch() {
    for (auto *output : outputs_) {
      if (output->device_ptr() == nullptr) host().AllocateMemory(output->device_address().get());
    }
  }

  Launch(const Launch &) = delete;
  Launch &operator=(const Launch &) = delete;

  ms_ext::PoolMemory memory() { return {allocate_on_host, release_on_host, this, take_input, give_output}; }

 private:
  // MindSpore counts who needs a tensor from now on, this launch included.
  static void *take_input(void *launch, size_t position) {
    const Tensors &inputs = static_cast<Launch *>(launch)->inputs_;
    auto *const input = inputs.at(position);
    if (input->new_ref_count() != 1 || !is_own(*input) || std::count(inputs.begin(), inputs.end(), input) > 1) {
      return nullptr;
    }
    void *const data = input->device_ptr();
    input->device_address()->set_ptr(nullptr);
    return data;
  }

  static void give_output(void *launch, size_t position, void *data) {
    const auto &address = static_cast<Launch *>(launch)->outputs_.at(position)->device_address();
    address->set_ptr(data);
    address->set_from_mem_pool(true);
  }

  const Tensors &inputs_;
  const Tensors &outputs_;
};

class ProgramKernel final : public mindspore::kernel::NativeCpuKernelMod {
 public:
  bool Init(const Tensors &, const Tensors &) override {
    static auto *const init = function_of<ms_ext::InitProgram>("libaten_cpu.so", "aten_programInit");
    extra_ = std::make_unique<ms_ext::Extra>(attribute("aten_op"), attribute("aten_args"));
    init(nullptr, nullptr, nullptr, extra_.get());
    return true;
  }

  bool Launch(const Tensors &inputs, const Tensors &, const Tensors &outputs) override {
    static auto *const launch = function_of<ms_ext::LaunchProgram>("libaten_cpu.so", "ms_ext_launch_program");
    ::Launch tensors(inputs, outputs);
    std::vector<void *> params;
    std::vector<int> ndims;
    std::vector<int64_t *> shapes;
    std::vector<const char *> dtypes;
    for (const Tensors *of : {&inputs, &outputs}) {
      for (const auto *tensor : *of) {
        const mindspore::ShapeVector &shape = tensor->GetShapeVector();
        params.push_back(tensor->device_ptr());
        ndims.push_back(static_cast<int>(shape.size()));
        shapes.push_back(const_cast<int64_t *>(shape.data()));
        dtypes.push_back(ms_ext::find(tensor->dtype_id())->name);
      }
    }
    const ms_ext::PoolMemory memory = tensors.memory();
    launch(static_cast<int>(params.size()), params.data(), ndims.data(), shapes.data(), dtypes.data(), extra_.get(),
           &memory);
    return true;
  }

  std::vector<mindspore::kernel::KernelAttr> GetOpSupport() override { return {}; }

 private:
  std::string attribute(const char *name) const { return mindspore::GetValue<std::string>(primitive_->GetAttr(name)); }

  std::unique_ptr<ms_ext::Extra> extra_;
};

const mindspore::kernel::KernelRegistrar<mindspore::kernel::NativeCpuKernelMod> registered_program("aten_program", [] {
  return std::make_shared<ProgramKernel>();
});

// While Python is in it, large tensors that PyTorch makes on this thread lie in MindSpore's pool.
class InPool {
 public:
  void enter() {
    static const ms_ext::PoolMemory memory{allocate_on_host, release_on_host, nullptr, nullptr, nullptr};
    static auto *const enter = function_of<void *(const ms_ext::PoolMemory *)>("libms_ext.so", "ms_ext_enter_pool");
    pool_ = enter(&memory);
  }

  void exit(const py::args &) {
    static auto *const leave = function_of<void(void *)>("libms_ext.so", "ms_ext_leave_pool");
    leave(std::exchange(pool_, nullptr));
  }

 private:
  void *pool_ = nullptr;
};

}  // namespace

void define_in_pool(py::module &module) {
  py::class_<InPool>(module, "InPool")
      .def(py::init<>())
      .def("__enter__", &InPool::enter)
      .def("__exit__", &InPool::exit);
}

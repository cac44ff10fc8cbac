// Graph mode's kernel for calls whose results have shapes that depend on the data: it tells MindSpore their shapes
// after each launch, as MindSpore's own NonZero does.
//
// For a Custom primitive MindSpore makes a kernel of its own class, unless one is registered under its uniq_name.
#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "function_of.h"
#include "include/runtime/hardware_abstract/device_context/device_context.h"
#include "include/runtime/hardware_abstract/device_context/device_context_manager.h"
#include "include/runtime/hardware_abstract/kernel_base/ms_factory.h"
#include "kernel/cpu/cpu_kernel.h"
#include "mindspore/aot_extra_layout.h"

namespace {

using mindspore::kernel::KernelTensor;
using ms_ext::function_of;
using KernelTensors = std::vector<KernelTensor *>;

// Of cpu.cpp, and of the shim in gradient/gradient.cpp.
using Take = void(void *to, int ndim, const int64_t *shape, const void *data, size_t bytes);
using Evaluate = void(int ninputs, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *extra,
                      Take *take, void *to);
using Init = int(int *ndims, int64_t **shapes, const char **dtypes, void *extra);

class DataDependent final : public mindspore::kernel::NativeCpuKernelMod {
 public:
  bool Init(const KernelTensors &, const KernelTensors &) override {
    static const auto init = function_of<::Init>("libms_ext.so", "aten_gradientInit");
    extra_ = std::make_unique<ms_ext::Extra>(attribute("aten_label"), attribute("aten_args"));
    init(nullptr, nullptr, nullptr, extra_.get());
    return true;
  }

  // MindSpore wants to allocate something, and refuses unknown shapes.
  int Resize(const KernelTensors &, const KernelTensors &outputs) override {
    output_size_list_.assign(outputs.size(), 1);
    inferred_.clear();
    for (const KernelTensor *output : outputs) inferred_.push_back(output->GetShapeVector());
    return mindspore::kernel::KRET_OK;
  }

  bool Launch(const KernelTensors &inputs, const KernelTensors &, const KernelTensors &outputs) override {
    static const auto evaluate = function_of<Evaluate>("libms_ext.so", "ms_ext_evaluate");
    std::vector<void *> params;
    std::vector<int> ndims;
    std::vector<int64_t *> shapes;
    std::vector<std::string> names;
    std::vector<const char *> dtypes;
    for (const KernelTensor *input : inputs) {
      const mindspore::ShapeVector &shape = input->GetShapeVector();
      params.push_back(input->device_ptr());
      ndims.push_back(static_cast<int>(shape.size()));
      shapes.push_back(const_cast<int64_t *>(shape.data()));
      names.push_back(mindspore::TypeIdToString(input->dtype_id(), true));
    }
    for (const std::string &name : names) dtypes.push_back(name.c_str());
    Results results{outputs, inferred_, {}};
    evaluate(static_cast<int>(params.size()), params.data(), ndims.data(), shapes.data(), dtypes.data(), extra_.get(),
             take, &results);
    shapes_ = std::move(results.shapes);
    return true;
  }

  bool IsNeedUpdateOutputShapeAndSize() override { return true; }

  void UpdateOutputShapeAndSize(const KernelTensors &, const KernelTensors &outputs) override {
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i]->SetShapeVector(shapes_.at(i));
      size_t bytes = mindspore::UnitSizeInBytes(outputs[i]->dtype_id());
      for (const int64_t size : shapes_[i]) bytes *= static_cast<size_t>(size);
      outputs[i]->set_size(bytes);
    }
  }

  std::vector<mindspore::kernel::KernelAttr> GetOpSupport() override { return {}; }

 private:
  struct Results {
    const KernelTensors &outputs;
    const std::vector<mindspore::ShapeVector> &inferred;
    std::vector<mindspore::ShapeVector> shapes;
  };

  // Whether a shape is what the graph was compiled for, with -1 for unknown dimensions and a single -2 for any rank.
  static bool fits(const mindspore::ShapeVector &shape, const mindspore::ShapeVector &inferred) {
    if (inferred == mindspore::ShapeVector{-2}) return true;
    return std::equal(shape.begin(), shape.end(), inferred.begin(), inferred.end(),
                      [](int64_t size, int64_t known) { return known < 0 || size == known; });
  }

  std::string attribute(const char *name) const { return mindspore::GetValue<std::string>(primitive_->GetAttr(name)); }

  // Puts the next result into memory of its size, in place of what MindSpore allocated before the launch.
  static void take(void *to, int ndim, const int64_t *shape, const void *data, size_t bytes) {
    auto &results = *static_cast<Results *>(to);
    const size_t result = results.shapes.size();
    mindspore::device::DeviceAddress *address = results.outputs.at(result)->device_address().get();
    results.shapes.emplace_back(shape, shape + ndim);
    if (!fits(results.shapes.back(), results.inferred.at(result))) {
      throw std::runtime_error("result " + std::to_string(result) + " has another shape than was inferred");
    }
    static const auto *device =
        mindspore::device::DeviceContextManager::GetInstance()
            .GetOrCreateDeviceContext(mindspore::device::DeviceContextKey{mindspore::device::DeviceType::kCPU, 0})
            ->device_res_manager_.get();
    if (address->GetPtr() != nullptr) device->FreeMemory(address);
    address->SetSize(std::max<size_t>(bytes, 1));
    if (!device->AllocateMemory(address)) {
      throw std::runtime_error("out of memory: MindSpore cannot allocate " + std::to_string(bytes) + " bytes");
    }
    std::memcpy(address->GetMutablePtr(), data, bytes);
  }

  std::unique_ptr<ms_ext::Extra> extra_;
  std::vector<mindspore::ShapeVector> inferred_;
  std::vector<mindspore::ShapeVector> shapes_;  // of the results of the last launch
};

const mindspore::kernel::KernelRegistrar<mindspore::kernel::NativeCpuKernelMod> registered("aten_data_dependent", [] {
  return std::make_shared<DataDependent>();
});

}  // namespace

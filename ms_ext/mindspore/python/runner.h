// The launch of a call: MindSpore gives the results memory, and the shim runs.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "include/runtime/hardware_abstract/device_context/device_context.h"
#include "include/runtime/utils/runtime_conf/runtime_conf.h"
#include "mindspore/python/dtype.h"
#include "mindspore/python/opened_shim.h"
#include "mindspore/python/python_object.h"

namespace ms_ext::pynative {

// Where empty tensors are on a CPU: some of ATen's kernels look at the first element without asking whether there is
// one.
alignas(64) inline char kNothing[64];

class Runner final : public ms::pynative::PyboostRunner {
 public:
  Runner(const std::string &name, std::shared_ptr<Shim> shim) : PyboostRunner(name), shim_(std::move(shim)) {}

  void LaunchKernel() override {
    std::vector<void *> params;
    std::vector<int> ndims;
    std::vector<int64_t *> shapes;
    std::vector<const char *> dtypes;
    for (const auto *tensors : {&inputs(), &outputs()}) {
      for (const ms::Tensor &tensor : *tensors) {
        const ShapeVector &shape = tensor.shape();
        params.push_back(tensor.numel() != 0 ? tensor.GetDataPtr() : shim_->on_host ? kNothing : nullptr);
        ndims.push_back(static_cast<int>(shape.size()));
        shapes.push_back(const_cast<int64_t *>(shape.data()));
        dtypes.push_back(find(tensor.data_type())->name);
      }
    }
    try {
      shim_->launch(static_cast<int>(params.size()), params.data(), ndims.data(), shapes.data(), dtypes.data(),
                    stream(), &shim_->extra);
    } catch (...) {
      shim_->explain("");  // not needed: the exception arrives with its words (mindspore/launch_error.h)
      throw;
    }
  }

 protected:
  void _MallocDeviceAddress() override {
    try {
      PyboostRunner::_MallocDeviceAddress();
    } catch (const std::exception &) {
      size_t bytes = 0;
      for (const ms::Tensor &output : outputs()) bytes += output.numel() * find(output.data_type())->size;
      throw std::runtime_error(op_name() + ": out of memory: MindSpore cannot allocate " + std::to_string(bytes) +
                               " bytes for its results");
    }
  }

  void _Run() override {
    if (!shim_->at_once) return PyboostRunner::_Run();
    const py::gil_scoped_release released;
    _PrepareStream();
    _PrepareDeviceAddress();
    _MallocDeviceAddress();
    launch();
  }

  // This is called on the thread on which MindSpore's kernels for CPU and GPU run, and stays there: passed on to the
  // thread for launches, as for other devices, kernels would overtake each other.
  void _DispatchLaunchTask() override { launch(); }

 private:
  void launch() {
    LaunchKernel();
    if (shim_->on_host) return;
    if (!mindspore::runtime::RuntimeConf::GetInstance()->launch_blocking()) {
      ProcessCrossStreamAddress();
    } else if (!_device_context_->device_res_manager_->SyncAllStreams()) {
      throw std::runtime_error(op_name() + ": the device failed while it ran");
    }
  }

  std::shared_ptr<Shim> shim_;
};

}  // namespace ms_ext::pynative

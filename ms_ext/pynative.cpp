// Calls on a CPU in PyNative mode, where nothing is recorded for a gradient: by MindSpore's interface for operators in
// C++ (ms::pynative::PyboostRunner), which a call passes in a third of the time that a primitive takes.
//
// Compiled with MindSpore's headers and string ABI. It knows shims by the three C functions that MindSpore knows.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aot_extra_layout.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "include/runtime/pipeline/pipeline.h"

namespace {

using mindspore::TypeId;

struct DType {
  TypeId id;
  const char *name;
  size_t size;
};

// MindSpore's names, which get_torch_tensors and bridge/dtypes.py read.
constexpr std::array kDTypes = {
    DType{TypeId::kNumberTypeBool, "bool", 1},
    DType{TypeId::kNumberTypeInt8, "int8", 1},
    DType{TypeId::kNumberTypeInt16, "int16", 2},
    DType{TypeId::kNumberTypeInt32, "int32", 4},
    DType{TypeId::kNumberTypeInt64, "int64", 8},
    DType{TypeId::kNumberTypeUInt8, "uint8", 1},
    DType{TypeId::kNumberTypeUInt16, "uint16", 2},
    DType{TypeId::kNumberTypeUInt32, "uint32", 4},
    DType{TypeId::kNumberTypeUInt64, "uint64", 8},
    DType{TypeId::kNumberTypeFloat16, "float16", 2},
    DType{TypeId::kNumberTypeBFloat16, "bfloat16", 2},
    DType{TypeId::kNumberTypeFloat32, "float32", 4},
    DType{TypeId::kNumberTypeFloat64, "float64", 8},
    DType{TypeId::kNumberTypeComplex64, "complex64", 8},
    DType{TypeId::kNumberTypeComplex128, "complex128", 16},
};

// Null for a dtype that is not in the table.
const DType *find(TypeId id) {
  for (const DType &dtype : kDTypes) {
    if (dtype.id == id) return &dtype;
  }
  return nullptr;
}

TypeId id_of(const std::string &name) {
  for (const DType &dtype : kDTypes) {
    if (name == dtype.name) return dtype.id;
  }
  return TypeId::kTypeUnknown;
}

// What a shim takes as `extra`: the two attributes that it reads, and the place for its decoded arguments.
class Extra final : public ms_ext::AotExtra {
 public:
  Extra(std::string op, std::string args) : op_(std::move(op)), args_(std::move(args)) { kernel_data = nullptr; }
  ~Extra() override { delete kernel_data; }
  bool HasAttr(std::string name) override { return name == "aten_op" || name == "aten_args"; }
  bool GetAttrBool(std::string) override { return false; }
  int64_t GetAttrInt(std::string) override { return 0; }
  float GetAttrFloat(std::string) override { return 0; }
  std::string GetAttrStr(std::string name) override { return name == "aten_op" ? op_ : args_; }

 private:
  std::string op_;
  std::string args_;
};

using Init = int (*)(int *ndims, int64_t **shapes, const char **dtypes, void *extra);
using Launch = int (*)(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                       void *extra);

// A shim with its decoded arguments. Launches that are under way keep it alive.
struct Shim {
  Shim(Launch launch, std::string op, std::string args) : launch(launch), extra(std::move(op), std::move(args)) {}

  Launch launch;
  Extra extra;
};

// Where empty tensors are: some of ATen's kernels look at the first element without asking whether there is one.
alignas(64) char kNothing[64];

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
        params.push_back(tensor.numel() == 0 ? kNothing : tensor.GetDataPtr());
        ndims.push_back(static_cast<int>(shape.size()));
        shapes.push_back(const_cast<int64_t *>(shape.data()));
        dtypes.push_back(find(tensor.data_type())->name);
      }
    }
    shim_->launch(static_cast<int>(params.size()), params.data(), ndims.data(), shapes.data(), dtypes.data(), nullptr,
                  &shim_->extra);
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

  // This is called on the thread on which MindSpore's CPU kernels run, and stays there: passed on to the thread for
  // launches, as for other devices, kernels would overtake each other.
  void _DispatchLaunchTask() override { LaunchKernel(); }

 private:
  std::shared_ptr<Shim> shim_;
};

// A kernel as Python calls it.
class Kernel {
 public:
  // Args: the shim's library and function; attributes of the primitive; whether the result is one tensor; and
  // infer([(shape, dtype), ...]), which gives the like for the results or raises.
  Kernel(const std::string &library, const std::string &function, const std::string &op, const std::string &args,
         bool single, py::function infer)
      : label_(op.find("::") == std::string::npos ? "aten." + op : op), single_(single), infer_(std::move(infer)) {
    void *handle = dlopen(library.c_str(), RTLD_NOW);
    const auto init = reinterpret_cast<Init>(handle == nullptr ? nullptr : dlsym(handle, (function + "Init").c_str()));
    const auto launch = reinterpret_cast<Launch>(handle == nullptr ? nullptr : dlsym(handle, function.c_str()));
    if (init == nullptr || launch == nullptr) throw std::runtime_error(library + " has no kernel " + function);
    shim_ = std::make_shared<Shim>(launch, op, args);
    init(nullptr, nullptr, nullptr, &shim_->extra);
  }

  // The results; None for inputs that only a primitive can take, or refuse.
  py::object operator()(const py::sequence &tensors) {
    std::vector<ms::Tensor> inputs;
    inputs.reserve(tensors.size());
    for (const py::handle tensor : tensors) inputs.push_back(tensor.cast<ms::Tensor>());
    wait_for(inputs);
    std::vector<int64_t> key;
    for (const ms::Tensor &input : inputs) {
      const ShapeVector &shape = input.shape();
      key.push_back(input.data_type());
      key.push_back(static_cast<int64_t>(shape.size()));
      key.insert(key.end(), shape.begin(), shape.end());
    }
    auto known = specs_.find(key);
    if (known == specs_.end()) {
      if (!std::all_of(inputs.begin(), inputs.end(), can_take)) return py::none();
      if (specs_.size() >= kMaxKnown) specs_.clear();
      known = specs_.emplace(std::move(key), infer(inputs)).first;
    }
    std::vector<ms::Tensor> outputs;
    for (const Spec &spec : known->second) {
      if (spec.dtype == TypeId::kTypeUnknown) return py::none();  // a result of a dtype that is not in the table
      outputs.emplace_back(spec.dtype, spec.shape);
    }
    std::make_shared<Runner>(label_, shim_)->Run(inputs, outputs);
    if (single_) return py::cast(outputs.front());
    py::tuple results(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) results[i] = py::cast(outputs[i]);
    return results;
  }

 private:
  struct Spec {
    TypeId dtype;
    ShapeVector shape;
  };

  static constexpr size_t kMaxKnown = 4096;

  // Not dtypes that PyTorch lacks, nor a tensor without data, of unknown shape.
  static bool can_take(const ms::Tensor &input) {
    const ShapeVector &shape = input.shape();
    return find(input.data_type()) != nullptr &&
           std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; });
  }

  // MindSpore's own operators are taken up by another thread. They come before this one.
  static void wait_for(std::vector<ms::Tensor> &inputs) {
    const py::gil_scoped_release released;
    auto &pipeline = mindspore::runtime::Pipeline::Get();
    const auto &frontend = pipeline.frontend_stage();
    if (frontend->CanPush()) {  // not on a thread that is itself behind that queue
      // WaitFrontend() spins without a pause, and so may keep the other thread from the core that it needs.
      while (!frontend->Empty()) std::this_thread::yield();
    }
    pipeline.WaitFrontend();  // throws what failed there
    for (ms::Tensor &input : inputs) {
      input.ConvertStubNodeToTensor();
      if (!input.is_contiguous()) input = input.contiguous();
    }
  }

  std::vector<Spec> infer(const std::vector<ms::Tensor> &inputs) {
    py::list known;
    for (const ms::Tensor &input : inputs) {
      known.append(py::make_tuple(py::tuple(py::cast(input.shape())), find(input.data_type())->name));
    }
    std::vector<Spec> specs;
    for (const py::handle result : infer_(known)) {
      const auto pair = py::reinterpret_borrow<py::tuple>(result);
      specs.push_back({id_of(pair[1].cast<std::string>()), pair[0].cast<ShapeVector>()});
    }
    return specs;
  }

  std::string label_;  // what errors call the operator
  bool single_;
  py::function infer_;
  std::shared_ptr<Shim> shim_;
  std::map<std::vector<int64_t>, std::vector<Spec>> specs_;
};

}  // namespace

PYBIND11_MODULE(_pynative, module) {
  py::class_<Kernel>(module, "Kernel")
      .def(py::init<const std::string &, const std::string &, const std::string &, const std::string &, bool,
                    py::function>())
      .def("__call__", &Kernel::operator());
}

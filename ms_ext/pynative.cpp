// Calls in PyNative mode, by MindSpore's interfaces in C++ for operators (ms::pynative::PyboostRunner) and for their
// gradients (CppFunctionNode), which a call passes in a third of the time that a primitive takes.
//
// Compiled with MindSpore's headers and string ABI. It knows shims by the three C functions that MindSpore knows.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "aot_extra_layout.h"
#include "graph_call.h"
#include "include/pynative/backward/function.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "include/pynative/utils/pynative_execute.h"
#include "include/runtime/hardware_abstract/device_context/device_context.h"
#include "include/runtime/pipeline/pipeline.h"
#include "include/runtime/utils/runtime_conf/runtime_conf.h"
#include "include/utils/amp.h"
#include "include/utils/pynative/grad_state.h"
#include "module.h"
#include "pynative_tensors.h"

namespace {

using mindspore::TypeId;
using ms_ext::DType;
using ms_ext::find;
using ms_ext::id_of;
using ms_ext::kDTypes;

// What differentiates the calls of a kernel.
struct Bprop {
  Bprop(std::string name, bool on_cpu, bool single, bool uses_results, py::object function)
      : name(std::move(name)),
        on_cpu(on_cpu),
        single(single),
        uses_results(uses_results),
        function(std::move(function)) {}
  Bprop(const Bprop &) = delete;
  Bprop &operator=(const Bprop &) = delete;
  ~Bprop() {
    if (!Py_IsInitialized() || _Py_IsFinalizing()) {
      function.release();  // nobody gets the GIL any more
      return;
    }
    const py::gil_scoped_acquire gil;  // MindSpore drops what it recorded on a thread of its own
    function = py::object();
  }

  std::string name;  // what errors call the kernel
  bool on_cpu;
  bool single;  // whether the kernel's result is one tensor
  bool uses_results;
  py::object function;  // of inputs, result and the result's gradient; None for a gradient that is not asked for
};

struct Spec {
  TypeId dtype;
  ShapeVector shape;
};
using Specs = std::shared_ptr<const std::vector<Spec>>;

// Zeros in a fraction of the time of MindSpore's operator: on a CPU at once, on a GPU in the order of the stream.
class Zeros final : public ms::pynative::PyboostRunner {
 public:
  explicit Zeros(bool on_cpu) : PyboostRunner("zeros"), on_cpu_(on_cpu) {}

  void LaunchKernel() override {
    const ms::Tensor &result = outputs().front();
    const size_t bytes = result.numel() * find(result.data_type())->size;
    if (bytes == 0) return;
    if (on_cpu_) {
      std::memset(result.GetDataPtr(), 0, bytes);
    } else {
      static const auto zero = reinterpret_cast<void (*)(void *data, size_t bytes, void *stream)>(
          dlsym(dlopen("libms_ext_cuda.so", RTLD_LAZY | RTLD_NOLOAD), "ms_ext_zero"));
      zero(result.GetDataPtr(), bytes, stream());
    }
  }

 protected:
  void _Run() override {
    if (!on_cpu_) return PyboostRunner::_Run();
    _PrepareDeviceAddress();
    _MallocDeviceAddress();
    LaunchKernel();
  }

  void _DispatchLaunchTask() override { LaunchKernel(); }  // as the kernels below

 private:
  bool on_cpu_;
};

// Stands for a call where MindSpore's templates want a type.
struct Call;

}  // namespace

namespace mindspore::pynative::autograd {

// A recorded call.
template <>
struct CppFunctionNode<Call> final : public BackwardNode {
  // Records nothing yet: `record` does.
  CppFunctionNode(std::shared_ptr<Bprop> bprop, Specs specs)
      : BackwardNode(bprop->name, specs->size()), bprop_(std::move(bprop)), specs_(std::move(specs)) {}

  void record(const TensorPtrList &inputs, TensorPtrList outputs) {
    context_.node_ = weak_from_this();
    inputs_ = inputs.size();
    TensorPtrList saved = inputs;
    if (bprop_->uses_results) saved.insert(saved.end(), outputs.begin(), outputs.end());
    context_.SaveForBackward(saved);
    CppFunctionDoGrad(&context_, inputs, &outputs);
    // That leaves the results in to_save_ too, and they hold this node: a call that is never differentiated would stay.
    mindspore::runtime::Pipeline::Get().bprop_stage()->Push(
        std::make_shared<Saved>(std::static_pointer_cast<CppFunctionNode>(shared_from_this())));
  }

  ValuePtrList CallBackward(const ValuePtrList &gradients) override {
    const TensorPtrList saved = context_.GetSavedTensors();
    const TensorPtrList cotangents = complete(gradients);
    std::vector<ms::Tensor> results(inputs_);
    {
      const py::gil_scoped_acquire gil;
      const py::object out = bprop_->uses_results ? packed(saved.begin() + inputs_, saved.end()) : py::none();
      const py::tuple found = bprop_->function(tuple(saved.begin(), saved.begin() + inputs_), out,
                                               packed(cotangents.begin(), cotangents.end()));
      for (size_t i = 0; i < inputs_; ++i) {
        if (!found[i].is_none()) results[i] = found[i].cast<ms::Tensor>();
      }
    }
    ValuePtrList values;
    for (const ms::Tensor &result : results) {
      if (result.is_defined()) {
        result.ConvertStubNodeToTensor();
        values.push_back(result.tensor());
      } else {
        values.push_back(kNone);
      }
    }
    return values;
  }

  void Release() override { context_.saved_tensors_.clear(); }

 private:
  // After MindSpore's task that saves the tensors, on the same thread.
  class Saved final : public mindspore::runtime::AsyncTask {
   public:
    explicit Saved(std::shared_ptr<CppFunctionNode> node)
        : AsyncTask(mindspore::runtime::kBpropTask), node_(std::move(node)) {}
    void Run() override { node_->context_.to_save_.clear(); }

   private:
    std::shared_ptr<CppFunctionNode> node_;
  };

  using Iterator = TensorPtrList::const_iterator;

  // With zeros for results that nobody used.
  TensorPtrList complete(const ValuePtrList &gradients) const {
    TensorPtrList completed;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Spec &spec = (*specs_)[i];
      if (!gradients[i]->isa<None>()) {
        completed.push_back(gradients[i]->cast<TensorPtr>());
      } else {
        const ms::Tensor zeros(spec.dtype, spec.shape);
        std::make_shared<Zeros>(bprop_->on_cpu)->Run({}, {zeros});
        completed.push_back(zeros.tensor());
      }
    }
    return completed;
  }

  static py::tuple tuple(Iterator begin, Iterator end) {
    py::tuple tensors(end - begin);
    for (size_t i = 0; begin != end; ++i, ++begin) tensors[i] = py::cast(ms::Tensor(*begin));
    return tensors;
  }

  py::object packed(Iterator begin, Iterator end) const {
    return bprop_->single ? py::cast(ms::Tensor(*begin)) : py::object(tuple(begin, end));
  }

  std::shared_ptr<Bprop> bprop_;
  Specs specs_;
  size_t inputs_ = 0;
  AutogradContext context_;
};

}  // namespace mindspore::pynative::autograd

namespace {

using Recorded = mindspore::pynative::autograd::CppFunctionNode<Call>;

using Init = int (*)(int *ndims, int64_t **shapes, const char **dtypes, void *extra);
using Launch = int (*)(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                       void *extra);

using Explain = void (*)(const char *message);

// A shim with its decoded arguments. Launches that are under way keep it alive.
struct Shim {
  Shim(Launch launch, Explain explain, bool on_cpu, bool at_once, std::string op, std::string args)
      : launch(launch), explain(explain), on_cpu(on_cpu), at_once(at_once), extra(std::move(op), std::move(args)) {}

  Launch launch;
  Explain explain;
  bool on_cpu;
  bool at_once;  // on the thread that calls, before the call returns
  ms_ext::Extra extra;
};

// What Cell.to_float and mindspore.amp ask of the operators that run now.
class MixedPrecision {
 public:
  // Args: the operator's name in the lists of mindspore.amp; nothing for one that takes its inputs as they are.
  explicit MixedPrecision(const std::string &name) : casts_(!name.empty()) {
    if (casts_) asked_->op_prim = std::make_shared<mindspore::Primitive>(name);
  }

  // Casts the floating tensors, recorded for the gradient. `kept` are the positions of those that stay as they are.
  void cast(std::vector<ms::Tensor> &inputs, const std::vector<size_t> &kept) const {
    if (!casts_ || !is_asked()) return;
    const py::gil_scoped_release released;  // as for every operator of MindSpore's
    for (const ms::Tensor &input : inputs) input.ConvertStubNodeToTensor();
    const TypeId dtype = asked_dtype(inputs);
    const mindspore::kernel::pyboost::RequireGradGuard recorded(mindspore::pynative::GradState::Get().RequiresGrad());
    for (size_t i = 0; i < inputs.size(); ++i) {
      ms::Tensor &input = inputs[i];
      if (!is_floating(input) || input.data_type() == dtype) continue;  // none is floating if the dtype is unknown
      if (std::find(kept.begin(), kept.end(), i) == kept.end()) input = input.cast(dtype);
    }
  }

  bool is_asked() const {
    static const auto executor = mindspore::pynative::PyNativeExecutor::GetInstance();
    asked_->mix_type = mindspore::kNotSet;
    asked_->mix_precision_type = nullptr;
    executor->StoreAsyncStatus(asked_);
    return !asked_->async_status.disable_mix_precision;
  }

 private:
  TypeId asked_dtype(const std::vector<ms::Tensor> &inputs) const {
    if (asked_->mix_type == mindspore::kAutoPromote) return widest(inputs);
    if (asked_->mix_precision_type != nullptr) return asked_->mix_precision_type->type_id();
    return asked_->mix_type == mindspore::kFP32   ? TypeId::kNumberTypeFloat32
           : asked_->mix_type == mindspore::kBF16 ? TypeId::kNumberTypeBFloat16
                                                  : TypeId::kNumberTypeFloat16;
  }

  static bool is_floating(const ms::Tensor &tensor) {
    const TypeId dtype = tensor.data_type();
    return dtype == TypeId::kNumberTypeFloat16 || dtype == TypeId::kNumberTypeBFloat16 ||
           dtype == TypeId::kNumberTypeFloat32 || dtype == TypeId::kNumberTypeFloat64;
  }

  // The dtype that holds every floating input; unknown if there is none.
  static TypeId widest(const std::vector<ms::Tensor> &inputs) {
    TypeId found = TypeId::kTypeUnknown;
    for (const ms::Tensor &input : inputs) {
      if (!is_floating(input) || input.data_type() == found) continue;
      const bool has_double = found == TypeId::kNumberTypeFloat64 || input.data_type() == TypeId::kNumberTypeFloat64;
      found = found == TypeId::kTypeUnknown ? input.data_type()
              : has_double                  ? TypeId::kNumberTypeFloat64
                                            : TypeId::kNumberTypeFloat32;
    }
    return found;
  }

  bool casts_;
  std::shared_ptr<mindspore::pynative::PyboostOpRunInfo> asked_ =
      std::make_shared<mindspore::pynative::PyboostOpRunInfo>();
};

// Where empty tensors are on a CPU: some of ATen's kernels look at the first element without asking whether there is
// one.
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
        params.push_back(tensor.numel() != 0 ? tensor.GetDataPtr() : shim_->on_cpu ? kNothing : nullptr);
        ndims.push_back(static_cast<int>(shape.size()));
        shapes.push_back(const_cast<int64_t *>(shape.data()));
        dtypes.push_back(find(tensor.data_type())->name);
      }
    }
    try {
      shim_->launch(static_cast<int>(params.size()), params.data(), ndims.data(), shapes.data(), dtypes.data(),
                    stream(), &shim_->extra);
    } catch (...) {
      shim_->explain("");  // not needed: the exception arrives with its words (launch_error.h)
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
    if (shim_->on_cpu) return;
    if (!mindspore::runtime::RuntimeConf::GetInstance()->launch_blocking()) {
      ProcessCrossStreamAddress();
    } else if (!_device_context_->device_res_manager_->SyncAllStreams()) {
      throw std::runtime_error(op_name() + ": the device failed while it ran");
    }
  }

  std::shared_ptr<Shim> shim_;
};

// A kernel as Python calls it.
class Kernel {
 public:
  // Args: the shim's library and function; whether that is for the CPU; whether to run it at once; attributes of the
  // primitive; whether the result is one tensor; infer([(shape, dtype), ...]), which gives the like for the results or
  // raises; differentiate(inputs, out, dout), which is given None as `out` unless it uses the results; and for
  // MixedPrecision, the name and which inputs to keep.
  Kernel(const std::string &library, const std::string &function, bool on_cpu, bool at_once, const std::string &op,
         const std::string &args, bool single, py::function infer, py::object differentiate, bool uses_results,
         const std::string &amp_name, std::vector<size_t> kept)
      : infer_(std::move(infer)), precision_(amp_name), kept_(std::move(kept)) {
    void *handle = dlopen(library.c_str(), RTLD_NOW);
    const auto init = reinterpret_cast<Init>(handle == nullptr ? nullptr : dlsym(handle, (function + "Init").c_str()));
    const auto launch = reinterpret_cast<Launch>(handle == nullptr ? nullptr : dlsym(handle, function.c_str()));
    const auto explain = reinterpret_cast<Explain>(handle == nullptr ? nullptr : dlsym(handle, "ms_ext_explain"));
    if (init == nullptr || launch == nullptr || explain == nullptr) {
      throw std::runtime_error(library + " has no kernel " + function);
    }
    shim_ = std::make_shared<Shim>(launch, explain, on_cpu, at_once, op, args);
    init(nullptr, nullptr, nullptr, &shim_->extra);
    bprop_ = std::make_shared<Bprop>(op.find("::") == std::string::npos ? "aten." + op : op, on_cpu, single,
                                     uses_results, std::move(differentiate));
  }

  // The results; None for inputs that only a primitive can take, or refuse.
  py::object operator()(const py::sequence &tensors) {
    std::vector<ms::Tensor> inputs;
    inputs.reserve(tensors.size());
    for (const py::handle tensor : tensors) inputs.push_back(tensor.cast<ms::Tensor>());
    precision_.cast(inputs, kept_);
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
    const Specs specs = known->second;
    std::vector<ms::Tensor> outputs;
    for (const Spec &spec : *specs) {
      if (spec.dtype == TypeId::kTypeUnknown) return py::none();  // a result of a dtype that is not in the table
      outputs.emplace_back(spec.dtype, spec.shape);
    }
    std::make_shared<Runner>(bprop_->name, shim_)->Run(contiguous(inputs), outputs);
    if (mindspore::pynative::GradState::Get().RequiresGrad()) {
      const py::gil_scoped_release released;  // the queue may be full, and its thread wait for the GIL
      std::make_shared<Recorded>(bprop_, specs)->record(held(inputs), held(outputs));
    }
    if (bprop_->single) return py::cast(outputs.front());
    py::tuple results(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) results[i] = py::cast(outputs[i]);
    return results;
  }

 private:
  static constexpr size_t kMaxKnown = 4096;

  // Not dtypes that PyTorch lacks, nor a tensor without data, of unknown shape.
  static bool can_take(const ms::Tensor &input) {
    const ShapeVector &shape = input.shape();
    return find(input.data_type()) != nullptr &&
           std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; });
  }

  // MindSpore's own operators are taken up by one thread, and run by another. They come before this one.
  void wait_for(const std::vector<ms::Tensor> &inputs) const {
    const py::gil_scoped_release released;
    ms_ext::wait_for_mindspore(shim_->at_once);
    for (const ms::Tensor &input : inputs) input.ConvertStubNodeToTensor();
  }

  static std::vector<ms::Tensor> contiguous(std::vector<ms::Tensor> inputs) {
    const py::gil_scoped_release released;
    const mindspore::kernel::pyboost::RequireGradGuard unrecorded(false);
    for (ms::Tensor &input : inputs) {
      if (!input.is_contiguous()) input = input.contiguous();
    }
    return inputs;
  }

  static mindspore::pynative::autograd::TensorPtrList held(const std::vector<ms::Tensor> &tensors) {
    mindspore::pynative::autograd::TensorPtrList list;
    for (const ms::Tensor &tensor : tensors) list.push_back(tensor.tensor());
    return list;
  }

  Specs infer(const std::vector<ms::Tensor> &inputs) {
    py::list known;
    for (const ms::Tensor &input : inputs) {
      known.append(py::make_tuple(py::tuple(py::cast(input.shape())), find(input.data_type())->name));
    }
    std::vector<Spec> specs;
    for (const py::handle result : infer_(known)) {
      const auto pair = py::reinterpret_borrow<py::tuple>(result);
      specs.push_back({id_of(pair[1].cast<std::string>()), pair[0].cast<ShapeVector>()});
    }
    return std::make_shared<const std::vector<Spec>>(std::move(specs));
  }

  py::function infer_;
  std::shared_ptr<Shim> shim_;
  std::shared_ptr<Bprop> bprop_;
  MixedPrecision precision_;
  std::vector<size_t> kept_;
  std::map<std::vector<int64_t>, Specs> specs_;
};

// The tensors as a kernel with that name and those inputs to keep would take them. See bridge/direct.py.
std::vector<ms::Tensor> cast(std::vector<ms::Tensor> tensors, const std::string &amp_name,
                             const std::vector<size_t> &kept) {
  {
    const py::gil_scoped_release released;
    for (const ms::Tensor &tensor : tensors) tensor.ConvertStubNodeToTensor();  // else Python cannot have it back
  }
  MixedPrecision(amp_name).cast(tensors, kept);
  return tensors;
}

// Whether a cell or a network that runs now asks for it, of whichever operators.
bool has_mixed_precision() {
  static const MixedPrecision of_all("Custom");
  return mindspore::amp::GetCurrentAmpStrategy() != nullptr || of_all.is_asked();
}

// See bridge/direct.py.
void leave_queues() {
  const py::gil_scoped_release released;  // tasks that wait there may need the GIL
  auto &pipeline = mindspore::runtime::Pipeline::Get();
  pipeline.WaitAll();
  pipeline.DisablePipeline();
}

// See bridge/direct.py.
std::string graph_location() {
  std::ostringstream location;
  const auto &provider = mindspore::LogWriter::GetTraceProvider();
  if (provider) provider(location, false);
  return location.str();
}

}  // namespace

PYBIND11_MODULE(_pynative, module) {
  define_graph_call(module);
  define_module(module);
  module.def("graph_location", &graph_location);
  module.def("leave_queues", &leave_queues);
  module.def("cast", &cast);
  module.def("has_mixed_precision", &has_mixed_precision);
  py::class_<Kernel>(module, "Kernel")
      .def(py::init<const std::string &, const std::string &, bool, bool, const std::string &, const std::string &,
                    bool, py::function, py::object, bool, const std::string &, std::vector<size_t>>())
      .def("__call__", &Kernel::operator());
}

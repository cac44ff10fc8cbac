// A PyTorch module in PyNative mode: runs it on MindSpore's memory under PyTorch's autograd, and records the call as
// one node of MindSpore's, whose backward runs PyTorch's engine.
//
// Compiled with MindSpore's headers and string ABI; torch_tensors.h has PyTorch's side.
#include "module.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "include/pynative/backward/function.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "include/utils/pynative/grad_state.h"
#include "include/utils/pynative/variable.h"
#include "pynative_tensors.h"
#include "torch_tensors.h"

namespace {

using mindspore::tensor::TensorPtr;
using mindspore::tensor::TensorPtrList;
using ms_ext::TensorMemory;

// PyTorch's side.
template <typename Function>
Function *torch_function(const char *name) {
  static void *library = dlopen("libms_ext_python.so", RTLD_LAZY | RTLD_NOLOAD);
  return reinterpret_cast<Function *>(dlsym(library, name));
}
#define TORCH(name) static const auto name = torch_function<decltype(::name)>(#name)

// Raises Python's error if there is one.
void check(bool succeeded) {
  if (!succeeded) throw py::error_already_set();
}

// The memory of a tensor of MindSpore's, which stays as long as its owner.
class Owner {
 public:
  static TensorMemory memory_of(const TensorPtr &tensor, void *data, int gpu) {
    const auto *dtype = ms_ext::find(tensor->data_type());
    if (dtype == nullptr) {
      throw py::type_error("PyTorch has no dtype for MindSpore's " + mindspore::TypeIdToString(tensor->data_type()));
    }
    auto *owner = new Owner(tensor);
    TensorMemory memory;
    memory.shape = owner->shape_.data();
    memory.ndim = owner->shape_.size();
    if (!tensor->is_contiguous()) memory.strides = owner->strides_.data();
    memory.data = tensor->DataSize() == 0 ? nullptr : data;
    memory.dtype = dtype->name;
    memory.gpu = gpu;
    memory.owner = owner;
    memory.release = [](void *object) { delete static_cast<Owner *>(object); };
    return memory;
  }

 private:
  explicit Owner(const TensorPtr &tensor)
      : shape_(tensor->shape()), on_device_(tensor->device_address()), copied_(tensor->implicit_copy_address()) {
    if (!tensor->is_contiguous()) strides_ = tensor->stride();
  }

  ShapeVector shape_;
  ShapeVector strides_;
  mindspore::device::DeviceAddressPtr on_device_;
  mindspore::device::DeviceAddressPtr copied_;
};

void *data_of(const TensorPtr &tensor) {
  const auto &address = tensor->device_address();
  char *data = address == nullptr ? nullptr : static_cast<char *>(address->GetMutablePtr());
  if (tensor->DataSize() == 0) return nullptr;
  if (data == nullptr)
    throw std::runtime_error("a tensor has an initializer that has not run: call its init_data() first");
  return data + tensor->storage_offset() * tensor->DataItemSize();
}

// What MindSpore needs to know of memory of PyTorch's, which is released with it.
mindspore::device::DeviceAddressPtr address_of(const TensorMemory &memory, size_t bytes) {
  using mindspore::device::DeviceType;
  const std::shared_ptr<void> owner(memory.owner, memory.release);
  const auto type = memory.gpu < 0 ? DeviceType::kCPU : DeviceType::kGPU;
  auto address = std::make_shared<mindspore::device::DeviceAddress>(memory.data, bytes, type);
  address->SetDevicePointerDeleter([owner](void *, bool) {});
  return address;
}

TensorPtr tensor_on(const TensorMemory &memory) {
  const auto dtype = ms_ext::id_of(memory.dtype);
  const ShapeVector shape(memory.shape, memory.shape + memory.ndim);
  size_t bytes = ms_ext::find(dtype)->size;
  for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
  return std::make_shared<mindspore::tensor::Tensor>(dtype, shape, address_of(memory, bytes));
}

// The graph that PyTorch recorded.
class Graph {
 public:
  Graph(const std::vector<PyObject *> &inputs, const std::vector<PyObject *> &outputs) {
    TORCH(ms_ext_graph);
    graph_ = ms_ext_graph(inputs.data(), inputs.size(), outputs.data(), outputs.size());
  }
  ~Graph() {
    TORCH(ms_ext_drop_graph);
    ms_ext_drop_graph(graph_);
  }
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;

  // See ms_ext_differentiate. `wanted` is a vector of char, as that of bool has no array.
  std::vector<TensorMemory> differentiate(const std::vector<TensorMemory> &gradients,
                                          const std::vector<char> &wanted) const {
    TORCH(ms_ext_differentiate);
    std::vector<TensorMemory> results(wanted.size());
    if (!ms_ext_differentiate(graph_, gradients.data(), reinterpret_cast<const bool *>(wanted.data()), false,
                              results.data())) {
      const py::gil_scoped_acquire gil;
      throw py::error_already_set();
    }
    return results;
  }

 private:
  void *graph_;
};

// Stands for a call where MindSpore's templates want a type.
struct ModuleCall;

}  // namespace

namespace mindspore::pynative::autograd {

// A recorded call.
template <>
struct CppFunctionNode<ModuleCall> final : public BackwardNode {
  // Records nothing yet: `record` does.
  CppFunctionNode(const std::string &name, size_t outputs, std::unique_ptr<Graph> graph)
      : BackwardNode(name, outputs), graph_(std::move(graph)) {}

  void record(const TensorPtrList &inputs, TensorPtrList outputs) {
    context_.node_ = weak_from_this();
    inputs_ = inputs.size();
    CppFunctionDoGrad(&context_, inputs, &outputs);
    // That leaves the results in to_save_ too, and they hold this node: a call that is never differentiated would stay.
    mindspore::runtime::Pipeline::Get().bprop_stage()->Push(
        std::make_shared<Saved>(std::static_pointer_cast<CppFunctionNode>(shared_from_this())));
  }

  ValuePtrList CallBackward(const ValuePtrList &gradients) override {
    if (graph_ == nullptr) throw std::runtime_error(name() + ": its gradient was already computed");
    std::vector<TensorMemory> cotangents(gradients.size());
    ms_ext::wait_for_mindspore(true);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i]->isa<None>()) continue;
      const auto tensor = gradients[i]->cast<TensorPtr>();
      cotangents[i] = Owner::memory_of(tensor, data_of(tensor), -1);
    }
    std::vector<char> wanted(inputs_);
    for (size_t i = 0; i < inputs_; ++i) wanted[i] = context_.NeedsInputGrad(i);
    const auto found = graph_->differentiate(cotangents, wanted);
    ValuePtrList values;
    for (const TensorMemory &memory : found) {
      values.push_back(memory.dtype == nullptr ? kNone : std::static_pointer_cast<Value>(tensor_on(memory)));
    }
    return values;
  }

  void Release() override { graph_.reset(); }

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

  std::unique_ptr<Graph> graph_;
  size_t inputs_ = 0;
  AutogradContext context_;
};

}  // namespace mindspore::pynative::autograd

namespace {

using Recorded = mindspore::pynative::autograd::CppFunctionNode<ModuleCall>;

// Whether PyTorch records on this thread, for a while.
class Recording {
 public:
  explicit Recording(bool enabled) : before_(set(enabled)) {}
  ~Recording() { set(before_); }

 private:
  static bool set(bool enabled) {
    TORCH(ms_ext_torch_record);
    return ms_ext_torch_record(enabled);
  }

  bool before_;
};

// A tensor that both frameworks have: a parameter or a buffer.
struct Shared {
  py::object own;    // MindSpore's
  py::object torch;  // PyTorch's
  bool requires_grad;
};

// A module as Python calls it.
class Module {
 public:
  explicit Module(std::string name) : name_(std::move(name)) {}

  // Has MindSpore's tensor use the memory of PyTorch's from now on.
  void share(const py::object &own, const py::object &torch) {
    TORCH(ms_ext_from_torch);
    TensorMemory memory;
    check(ms_ext_from_torch(torch.ptr(), &memory));
    const TensorPtr tensor = tensor_of(own);
    tensor->set_device_address(tensor_on(memory)->device_address());
    shared_.push_back({own, torch, requires_grad(torch)});
  }

  // Args: call([torch.Tensor, ...]), which runs the module and gives the tensors among its results; and MindSpore's
  // tensors. Returns MindSpore's.
  py::list operator()(const py::function &call, const py::sequence &tensors) {
    TensorPtrList inputs;
    for (const py::handle tensor : tensors) inputs.push_back(tensor_of(tensor));
    {
      const py::gil_scoped_release released;
      ms_ext::wait_for_mindspore(true);
    }
    follow();
    const bool records = mindspore::pynative::GradState::Get().RequiresGrad();
    TensorPtrList recorded;
    std::vector<PyObject *> leaves;
    py::list views;
    for (const TensorPtr &input : inputs) {
      const bool needed = records && mindspore::pynative::autograd::impl::RequiresGrad(input);
      views.append(view(input, needed));
      if (!needed) continue;
      recorded.push_back(input);
      leaves.push_back(PyList_GET_ITEM(views.ptr(), views.size() - 1));
    }
    py::list results;
    {
      const Recording recording(records);
      results = call(views);
    }
    if (!records) return converted(results);
    for (const Shared &shared : shared_) {
      if (!shared.requires_grad) continue;
      recorded.push_back(tensor_of(shared.own));
      leaves.push_back(shared.torch.ptr());
    }
    TensorPtrList outputs;
    std::vector<PyObject *> roots;
    py::list own = converted(results);
    for (size_t i = 0; i < own.size(); ++i) {
      if (!requires_grad(results[i])) continue;
      outputs.push_back(tensor_of(own[i]));
      roots.push_back(PyList_GET_ITEM(results.ptr(), i));
    }
    if (!roots.empty()) {
      auto node = std::make_shared<Recorded>(name_, roots.size(), std::make_unique<Graph>(leaves, roots));
      const py::gil_scoped_release released;
      node->record(recorded, std::move(outputs));
    }
    return own;
  }

 private:
  static TensorPtr tensor_of(const py::handle &object) {
    const auto tensor = object.cast<ms::Tensor>();
    tensor.ConvertStubNodeToTensor();
    return tensor.tensor();
  }

  static bool requires_grad(const py::handle &torch) {
    TORCH(ms_ext_torch_requires_grad);
    return ms_ext_torch_requires_grad(torch.ptr());
  }

  static py::object view(const TensorPtr &tensor, bool requires_grad) {
    TORCH(ms_ext_to_torch);
    const TensorMemory memory = Owner::memory_of(tensor, data_of(tensor), -1);
    const auto found = py::reinterpret_steal<py::object>(ms_ext_to_torch(&memory, requires_grad));
    check(static_cast<bool>(found));
    return found;
  }

  static py::list converted(const py::list &results) {
    TORCH(ms_ext_from_torch);
    py::list own;
    for (const py::handle result : results) {
      TensorMemory memory;
      check(ms_ext_from_torch(result.ptr(), &memory));
      own.append(py::cast(ms::Tensor(tensor_on(memory))));
    }
    return own;
  }

  // Has PyTorch's tensors use the memory that MindSpore's have now: after a checkpoint was loaded, say.
  void follow() {
    TORCH(ms_ext_torch_address);
    TORCH(ms_ext_torch_set_data);
    for (Shared &shared : shared_) {
      const TensorPtr tensor = tensor_of(shared.own);
      void *data = data_of(tensor);
      if (data == ms_ext_torch_address(shared.torch.ptr())) continue;
      const TensorMemory memory = Owner::memory_of(tensor, data, -1);
      check(ms_ext_torch_set_data(shared.torch.ptr(), &memory));
    }
  }

  std::string name_;
  std::vector<Shared> shared_;
};

}  // namespace

void define_module(py::module &module) {
  py::class_<Module>(module, "Module")
      .def(py::init<std::string>())
      .def("share", &Module::share)
      .def("__call__", &Module::operator());
}

// A PyTorch module in PyNative mode: runs it on MindSpore's memory under PyTorch's autograd, and records the call as
// one node of MindSpore's, whose backward runs PyTorch's engine.
//
// Compiled with MindSpore's headers and string ABI; torch_tensors.h has PyTorch's side.
#include "mindspore/python/module.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "function_of.h"
#include "include/pynative/backward/function.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "include/utils/pynative/grad_state.h"
#include "include/utils/pynative/variable.h"
#include "ir/func_graph.h"
#include "mindspore/python/filled.h"
#include "mindspore/python/memory.h"
#include "mindspore/python/mixed_precision.h"
#include "mindspore/python/needs.h"
#include "mindspore/python/queues.h"
#include "mindspore/python/received.h"
#include "mindspore/python/tensor_object.h"
#include "programs/python/torch_tensors.h"

namespace {

using mindspore::tensor::TensorPtr;
using mindspore::tensor::TensorPtrList;
using mindspore::tensor::Version;
using ms_ext::function_of;
using ms_ext::TensorMemory;
using ms_ext::pynative::AllReceived;
using ms_ext::pynative::data_of;
using ms_ext::pynative::Owner;
using ms_ext::pynative::Received;
using ms_ext::pynative::tensor_of;
using ms_ext::pynative::tensor_on;

// Finds a function of PyTorch's side once.
#define TORCH(name) static const auto name = function_of<decltype(::name)>("libms_ext_python.so", #name)

// Raises Python's error if there is one.
void check(bool succeeded) {
  if (!succeeded) throw py::error_already_set();
}

bool has_hooks(const py::handle &torch) {
  TORCH(ms_ext_torch_has_hooks);
  return ms_ext_torch_has_hooks(torch.ptr());
}

bool requires_grad(const py::handle &torch) {
  TORCH(ms_ext_torch_requires_grad);
  return ms_ext_torch_requires_grad(torch.ptr());
}

bool is_parameter(const py::handle &torch) {
  return py::isinstance(torch, py::module_::import("torch").attr("nn").attr("Parameter"));
}

// MindSpore says of numbers of all kinds that they require a gradient.
bool may_require_grad(mindspore::TypeId type) {
  switch (type) {
    case mindspore::kNumberTypeFloat16:
    case mindspore::kNumberTypeBFloat16:
    case mindspore::kNumberTypeFloat32:
    case mindspore::kNumberTypeFloat64:
    case mindspore::kNumberTypeComplex64:
    case mindspore::kNumberTypeComplex128:
      return true;
    default:
      return false;
  }
}

uint32_t version(const py::handle &torch) {
  TORCH(ms_ext_torch_version);
  return ms_ext_torch_version(torch.ptr());
}

// Where MindSpore's GPU keeps tensors for others, and on which stream that works.
//
// MindSpore's interface for operators brings tensors there that are elsewhere, as for any operator.
class Place final : public ms::pynative::PyboostRunner {
 public:
  explicit Place(int gpu) : PyboostRunner("module"), gpu_(gpu) {}

  // Waits for MindSpore to launch what it was asked for, and brings the tensors here. None on a CPU. Without the GIL.
  static std::shared_ptr<Place> of(const TensorPtrList &tensors, int gpu) {
    if (gpu < 0) {
      ms_ext::wait_for_mindspore(true);
      return nullptr;
    }
    ms_ext::wait_for_launches();  // tensors have their memory from then on
    auto place = std::make_shared<Place>(gpu);
    place->_PrepareStream();
    std::vector<ms::Tensor> elsewhere;
    for (const TensorPtr &tensor : tensors) {
      if (!place->has(tensor)) elsewhere.emplace_back(tensor);
    }
    if (elsewhere.empty()) return place;  // as parameters usually are: MindSpore takes a microsecond for each
    place->Run(elsewhere, {});
    ms_ext::wait_for_launches();
    return place;
  }

  static uint32_t stream_id_of(const std::shared_ptr<Place> &place) {
    return place == nullptr ? 0 : static_cast<uint32_t>(place->stream_id());
  }

  int gpu() const { return gpu_; }
  using PyboostRunner::stream;
  using PyboostRunner::stream_id;

  void LaunchKernel() override {}

 private:
  bool has(const TensorPtr &tensor) const {
    const auto &address = tensor->device_address();
    return address != nullptr && address->GetDeviceType() == mindspore::device::DeviceType::kGPU &&
           address->stream_id() == stream_id() && address->GetPtr() != nullptr;
  }

  int gpu_;
};

TensorMemory memory_of(const py::handle &torch) {
  TORCH(ms_ext_from_torch);
  TensorMemory memory;
  check(ms_ext_from_torch(torch.ptr(), &memory));
  return memory;
}

TensorPtr from_torch(const py::handle &torch) { return tensor_on(memory_of(torch), 0); }

// Args: what a module gave; MindSpore's GPU, or -1; its stream.
TensorPtr from_result(const py::handle &torch, int gpu, uint32_t stream_id) {
  const TensorMemory memory = memory_of(torch);
  if (memory.gpu >= 0 && memory.gpu != gpu) {  // MindSpore's later calls would fail
    memory.release(memory.owner);
    throw py::value_error("a result is on PyTorch's device cuda:" + std::to_string(memory.gpu) +
                          ", which is not MindSpore's");
  }
  return tensor_on(memory, stream_id);
}

void wait_for_torch(int gpu) {
  static const auto wait = function_of<void(int)>("libms_ext_cuda.so", "ms_ext_wait_for_torch");
  wait(gpu);
}

// While it lives, PyTorch works on MindSpore's stream.
class OnStream {
 public:
  explicit OnStream(const std::shared_ptr<Place> &place) {
    if (place == nullptr) return;
    static const auto enter = function_of<void *(void *, int)>("libms_ext_cuda.so", "ms_ext_enter_stream");
    guard_ = enter(place->stream(), place->gpu());
  }
  ~OnStream() {
    if (guard_ == nullptr) return;
    static const auto leave = function_of<void(void *)>("libms_ext_cuda.so", "ms_ext_leave_stream");
    leave(guard_);
  }
  OnStream(const OnStream &) = delete;
  OnStream &operator=(const OnStream &) = delete;

 private:
  void *guard_ = nullptr;
};

// While it lives, PyTorch is not in its inference mode on this thread.
class OutsideInferenceMode {
 public:
  OutsideInferenceMode() {
    TORCH(ms_ext_torch_leave_inference_mode);
    left_ = ms_ext_torch_leave_inference_mode();
  }
  ~OutsideInferenceMode() {
    if (left_ == nullptr) return;
    TORCH(ms_ext_torch_enter_again);
    ms_ext_torch_enter_again(left_);
  }
  OutsideInferenceMode(const OutsideInferenceMode &) = delete;
  OutsideInferenceMode &operator=(const OutsideInferenceMode &) = delete;

 private:
  void *left_ = nullptr;
};

// While it lives, PyTorch records on this thread, or does not.
class Recording {
 public:
  explicit Recording(bool enabled) : before_(set(enabled)) {}
  ~Recording() { set(before_); }
  Recording(const Recording &) = delete;
  Recording &operator=(const Recording &) = delete;

 private:
  static bool set(bool enabled) {
    TORCH(ms_ext_torch_record);
    return ms_ext_torch_record(enabled);
  }

  bool before_;
};

// Tells PyTorch what MindSpore wrote to a tensor that both have, after PyTorch may have saved it for a gradient.
struct Watched {
  Version own;
  uint32_t known;
  PyObject *torch;  // the graph keeps it
};

using Objects = std::vector<py::object>;

std::vector<PyObject *> pointers(const Objects &objects) {
  std::vector<PyObject *> list;
  list.reserve(objects.size());
  for (const py::object &object : objects) list.push_back(object.ptr());
  return list;
}

// Calls a function of Python's.
py::object called(const py::object &function, const Objects &arguments) {
  PyObject *result = PyObject_Vectorcall(function.ptr(), pointers(arguments).data(), arguments.size(), nullptr);
  check(result != nullptr);
  return py::reinterpret_steal<py::object>(result);
}

// What PyTorch recorded between tensors, which it frees with them.
class Graph {
 public:
  Graph(Objects inputs, Objects outputs, bool is_torch_code)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)), is_torch_code_(is_torch_code) {}

  ~Graph() {
    const bool has_python = Py_IsInitialized() && !_Py_IsFinalizing();  // else nobody gets the GIL any more
    std::optional<py::gil_scoped_acquire> gil;  // MindSpore drops what it recorded on a thread of its own
    if (has_python) gil.emplace();
    for (Objects *objects : {&outputs_, &inputs_, &watched_objects_}) {
      for (py::object &object : *objects) {
        const py::handle released = object.release();
        if (has_python) released.dec_ref();
      }
    }
  }

  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;

  void watch(const TensorPtr &own, const py::object &torch) {
    watched_.push_back({own->version(), own->version().current_version(), torch.ptr()});
    watched_objects_.push_back(torch);
  }

  // The gradients of the inputs; without tensor where they are not wanted, or zero.
  std::vector<TensorMemory> differentiate(const std::vector<TensorMemory> &gradients, const bool *wanted) const {
    TORCH(ms_ext_differentiate);
    TORCH(ms_ext_torch_written);
    for (const Watched &watched : watched_) {
      if (watched.own.current_version() != watched.known) ms_ext_torch_written(watched.torch);
    }
    std::vector<TensorMemory> results(inputs_.size());
    if (!ms_ext_differentiate(pointers(inputs_).data(), wanted, inputs_.size(), pointers(outputs_).data(),
                              gradients.data(), outputs_.size(), is_torch_code_, results.data())) {
      const py::gil_scoped_acquire gil;
      throw py::error_already_set();
    }
    return results;
  }

 private:
  Objects inputs_, outputs_, watched_objects_;
  std::vector<Watched> watched_;
  bool is_torch_code_;
};

// Stands for a call where MindSpore's templates want a type.
struct ModuleCall;

}  // namespace

namespace mindspore::pynative::autograd {

// A recorded call.
template <>
struct CppFunctionNode<ModuleCall> final : public BackwardNode {
  // Records nothing yet: `record` does. Args, besides: for each input what it receives, if it is a Parameter; how many
  // of them the module does not have itself.
  CppFunctionNode(const std::string &name, size_t outputs, std::unique_ptr<Graph> graph, int gpu, bool has_hooks,
                  std::vector<std::shared_ptr<Received>> received, size_t others)
      : BackwardNode(name, outputs),
        graph_(std::move(graph)),
        gpu_(gpu),
        has_hooks_(has_hooks),
        received_(std::move(received)),
        others_(others) {}

  // Args: the tensors that have a gradient; the results; the inputs that the module wrote to, which are results too.
  void record(const TensorPtrList &inputs, TensorPtrList outputs, const TensorPtrList &written) {
    context_.node_ = weak_from_this();
    inputs_ = inputs.size();
    context_.MarkDirty(written);
    CppFunctionDoGrad(&context_, inputs, &outputs);
    // That leaves the results in to_save_ too, and they hold this node: a call that is never differentiated would stay.
    mindspore::runtime::Pipeline::Get().bprop_stage()->Push(
        std::make_shared<Saved>(std::static_pointer_cast<CppFunctionNode>(shared_from_this())));
  }

  ValuePtrList CallBackward(const ValuePtrList &gradients) override {
    std::optional<py::gil_scoped_release> released;  // PyTorch's engine wants it
    if (PyGILState_Check() != 0) released.emplace();
    if (graph_ == nullptr) throw std::runtime_error(name() + ": its gradient was already computed");
    if (GradState::Get().RequiresGrad()) {
      throw std::runtime_error(
          name() +
          ": the gradient of a PyTorch module's gradient is not available, for which "
          "mindspore.jvp and jacfwd ask, too: a module of bridge.cell or a function of bridge.fuse "
          "may take the inner one, by torch.autograd.grad(..., create_graph=True)");
    }
    TensorPtrList given;
    for (const ValuePtr &gradient : gradients) {
      if (!gradient->isa<None>()) given.push_back(gradient->cast<TensorPtr>());
    }
    const auto place = Place::of(given, gpu_);
    std::vector<TensorMemory> cotangents;
    for (const ValuePtr &gradient : gradients) {
      const bool unused = gradient->isa<None>();
      cotangents.push_back(unused ? TensorMemory() : Owner::memory_of(gradient->cast<TensorPtr>(), gpu_));
    }
    const auto wanted = std::make_unique<bool[]>(inputs_);
    for (size_t i = 0; i < inputs_; ++i) {
      // A hook of a layer runs when the gradient of the layer's input is computed.
      wanted[i] = has_hooks_ ? context_.NeedsInputGrad(i) : ms_ext::pynative::is_asked(*this, i);
    }
    const OnStream on_stream(place);
    ValuePtrList values;
    for (const TensorMemory &found : graph_->differentiate(cotangents, wanted.get())) {
      const size_t i = values.size();
      const bool is_nothing = found.dtype == nullptr;
      if (wanted[i] && received_[i] != nullptr) {
        if (!is_nothing) received_[i]->gradient = true;
        if (is_nothing && i >= others_) received_[i]->nothing = true;
      }
      values.push_back(is_nothing ? kNone : ValuePtr(tensor_on(found, Place::stream_id_of(place))));
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
  int gpu_;
  bool has_hooks_;
  std::vector<std::shared_ptr<Received>> received_;
  size_t others_, inputs_ = 0;
  AutogradContext context_;
};

}  // namespace mindspore::pynative::autograd

namespace {

// Memory of PyTorch's where graphs have a Parameter. Who has taken `data` of it goes on with what it holds when
// something else is written there.
class Held {
 public:
  // Args: PyTorch's tensor; whether MindSpore's memory is that tensor's, and not the reverse.
  Held(const py::handle &torch, bool is_torchs) : is_torchs_(is_torchs) {
    TORCH(ms_ext_torch_hold);
    held_ = ms_ext_torch_hold(torch.ptr());
  }
  ~Held() {
    TORCH(ms_ext_torch_drop);
    ms_ext_torch_drop(held_);
  }
  Held(const Held &) = delete;
  Held &operator=(const Held &) = delete;

  // Whether others have it, besides this and the owner of MindSpore's memory.
  bool has_others() const {
    TORCH(ms_ext_torch_references);
    return held_ != nullptr && ms_ext_torch_references(held_) > (is_torchs_ ? 2 : 1);
  }

  void move_away(const mindspore::device::DeviceAddressPtr &address, const void *place) const {
    if (!has_others()) return;
    TORCH(ms_ext_torch_move_away);
    TensorMemory former;
    check(ms_ext_torch_move_away(held_, place, &former));
    if (former.owner == nullptr) return;
    const std::shared_ptr<void> owner(former.owner, former.release);
    if (is_torchs_) address->SetDevicePointerDeleter([owner](void *, bool) {});
  }

 private:
  void *held_;
  bool is_torchs_;
};

using Recorded = mindspore::pynative::autograd::CppFunctionNode<ModuleCall>;

// What is known of a Parameter of MindSpore's. All who share it have one of these, by which each sees what has changed
// since somebody last looked.
struct Known {
  bool requires_grad;
  bool is_buffer;                                  // PyTorch's, of which PyTorch's user has asked for no gradient
  py::object torch;                                // PyTorch's tensor for it; somebody may have an older one
  const void *data = nullptr;                      // where both frameworks had it
  bool is_torchs = true;                           // whether that memory is PyTorch's own
  mindspore::device::DeviceAddressPtr for_graphs;  // the memory that graphs go on with; null if it is in none
  std::vector<std::unique_ptr<Held>> held;         // PyTorch's on that
  std::shared_ptr<Received> received = std::make_shared<Received>();
};

// With the GIL.
std::map<PyObject *, std::weak_ptr<Known>> &all_known() {
  static auto *const all = new std::map<PyObject *, std::weak_ptr<Known>>;
  return *all;
}

// With the GIL.
std::shared_ptr<Known> known_of(PyObject *parameter, const py::object &torch) {
  std::weak_ptr<Known> &known = all_known()[parameter];
  if (const auto found = known.lock()) return found;
  const TensorPtr tensor = mindspore::tensor::ConvertToTensor(py::reinterpret_borrow<py::object>(parameter));
  const auto forget = [parameter, place = tensor.get()](const Known *value) {
    all_known().erase(parameter);
    AllReceived::get().remove(place);
    delete value;
  };
  const std::shared_ptr<Known> made(new Known{requires_grad(torch), !is_parameter(torch), {}}, forget);
  AllReceived::get().add(tensor, made->received);
  known = made;
  return made;
}

const void *address_of(const py::handle &torch) {
  TORCH(ms_ext_torch_address);
  return ms_ext_torch_address(torch.ptr());
}

// Waits for MindSpore's graphs on a GPU.
void synchronize() { py::module_::import("mindspore").attr("runtime").attr("synchronize")(); }

// A parameter or buffer that both frameworks have, on the same memory.
class Shared {
 public:
  Shared(py::object own, py::object torch)
      : own_(std::move(own)), torch_(std::move(torch)), known_(known_of(own_.ptr(), torch_)) {
    known_->torch = torch_;
    share(tensor());
  }

  TensorPtr tensor() const { return mindspore::tensor::ConvertToTensor(own_); }
  const py::object &torch() const { return torch_; }
  bool requires_grad() const { return known_->requires_grad; }
  const std::shared_ptr<Received> &received() const { return known_->received; }

  // Follows the framework in which it changed: whose memory is another, or who froze it.
  void follow(const TensorPtr &tensor, int gpu) {
    if (is_current() ? data_of(tensor) != data() : data_of(tensor) != address_of(torch_)) {
      give_to_torch(tensor, gpu);
    } else {
      follow_torch(tensor);
    }
    follow_requires_grad(tensor);
  }

  // The same for data that the module, or a function that it calls, has assigned.
  void follow_torch(const TensorPtr &tensor) {
    if (is_assigned()) share(tensor);
  }

  // What becomes of a tensor in whose place PyTorch has put another one does not count.
  bool is_assigned() const { return is_current() && address_of(torch_) != data(); }

  // The same between calls. Where MindSpore has other memory too, the next call follows that.
  void follow_assigned() {
    if (!is_assigned()) return;
    const TensorPtr own = tensor();
    if (data_of(own) == data()) share(own);
  }

  // A graph has it now, and goes on with the memory that it has.
  void stay(const TensorPtr &tensor, int gpu) {
    const auto &address = tensor->device_address();
    if (known_->for_graphs != nullptr || address == nullptr || data_of(tensor) == nullptr) return;
    if ((address->GetDeviceType() == mindspore::device::DeviceType::kGPU) != (gpu >= 0)) return;
    known_->for_graphs = address;
    if (is_assigned() && data_of(tensor) == data()) return share(tensor);
    if (!is_assigned()) hold(known_->is_torchs);
    give_to_torch(tensor, gpu);  // PyTorch may free memory of its own, as share_memory_() does
  }

  // Has both use the memory from before MindSpore got other data.
  void take_back(const TensorPtr &tensor, int gpu) {
    if (known_->for_graphs == nullptr) return share(tensor);
    tensor->set_device_address(known_->for_graphs);
    give_to_torch(tensor, gpu);
  }

  // It has another dtype now, and other memory: graphs are compiled anew.
  void leave_graphs() {
    known_->held.clear();
    known_->for_graphs = nullptr;
  }

  // The same for who froze it. Who unfreezes all of MindSpore's Parameters does not mean PyTorch's buffers, which no
  // optimizer of PyTorch's has.
  void follow_requires_grad(const TensorPtr &tensor) {
    const bool trained = is_trained(tensor);
    const bool is_unfrozen_buffer = known_->is_buffer && tensor->param_info()->requires_grad();
    if (trained != known_->requires_grad || is_unfrozen_buffer) {
      if (tensor->device_type() == mindspore::device::DeviceType::kGPU) synchronize();
      known_->requires_grad = trained;
      own_.attr("requires_grad") = trained;
    }
  }

  // Whether it is trained, as whoever was the last to say so has it. PyTorch follows MindSpore. MindSpore does not
  // follow PyTorch: on a GPU that hangs while a graph runs.
  bool is_trained(const TensorPtr &tensor) {
    if (::requires_grad(torch_)) known_->is_buffer = false;
    const bool in_mindspore = tensor->param_info()->requires_grad() && may_require_grad(tensor->data_type());
    if (in_mindspore != known_->requires_grad && !known_->is_buffer) {
      TORCH(ms_ext_torch_set_requires_grad);
      known_->requires_grad = in_mindspore;
      check(ms_ext_torch_set_requires_grad(torch_.ptr(), in_mindspore));
    }
    return ::requires_grad(torch_);
  }

  // Takes another tensor in the place of PyTorch's.
  void replace(py::object torch) {
    torch_ = std::move(torch);
    known_->torch = torch_;
    share(tensor());
  }

 private:
  void give_to_torch(const TensorPtr &tensor, int gpu) {
    TORCH(ms_ext_torch_set_data);
    const TensorMemory memory = Owner::memory_of(tensor, gpu);
    check(ms_ext_torch_set_data(torch_.ptr(), &memory));
    has_at(memory.data);
    if (!is_current()) return;
    known_->is_torchs = false;
    if (known_->for_graphs != nullptr) hold(false);
  }

  void hold(bool is_torchs) const {
    auto &held = known_->held;
    held.erase(std::remove_if(held.begin(), held.end(), [](const auto &one) { return !one->has_others(); }),
               held.end());
    held.push_back(std::make_unique<Held>(torch_, is_torchs));
  }

  bool is_current() const { return known_->torch.is(torch_); }

  // Where both frameworks had it. Whoever has the tensor that PyTorch has now knows of all who moved it.
  const void *data() const { return is_current() ? known_->data : data_; }

  void has_at(const void *data) {
    data_ = data;
    if (is_current()) known_->data = data;
  }

  // Has MindSpore use PyTorch's memory; has both use that of graphs, with what PyTorch has, if there are any.
  void share(const TensorPtr &tensor) {
    const TensorPtr found = from_torch(torch_);
    if (found->shape() != tensor->shape() || found->data_type() != tensor->data_type()) {
      throw py::value_error(own_.attr("name").cast<std::string>() +
                            ": PyTorch's tensor has another shape or dtype now than MindSpore's Parameter: call "
                            "bridge.cell again after such a change");
    }
    const int gpu = found->device_type() == mindspore::device::DeviceType::kGPU
                        ? static_cast<int>(found->device_address()->device_id())
                        : -1;
    const auto &for_graphs = known_->for_graphs;
    if (for_graphs != nullptr && for_graphs->GetDeviceType() == found->device_type()) {
      tensor->set_device_address(for_graphs);
      if (address_of(torch_) != data_of(tensor)) move_torch(tensor, gpu);
      has_at(data_of(tensor));
      return;
    }
    tensor->set_device_address(found->device_address());
    known_->is_torchs = true;
    has_at(data_of(tensor));
    if (address_of(torch_) != data_of(tensor)) give_to_torch(tensor, gpu);  // it is not contiguous: this is a copy
  }

  // Copies what PyTorch has to MindSpore's memory, which it uses from then on.
  void move_torch(const TensorPtr &tensor, int gpu) const {
    TORCH(ms_ext_torch_move);
    if (gpu >= 0) synchronize();  // graphs may read there
    const TensorMemory memory = Owner::memory_of(tensor, gpu);
    for (const auto &held : known_->held) held->move_away(known_->for_graphs, memory.data);
    known_->held.clear();
    check(ms_ext_torch_move(torch_.ptr(), &memory));
    hold(false);
    if (gpu >= 0) py::module_::import("torch").attr("cuda").attr("synchronize")();
  }

  py::object own_;
  py::object torch_;
  std::shared_ptr<Known> known_;
  const void *data_ = nullptr;
};

// A dictionary of a module's, with what it had when it was looked at.
class Looked {
 public:
  explicit Looked(py::dict dictionary) : dictionary_(std::move(dictionary)) {
    for (const auto &item : dictionary_) values_.push_back(py::reinterpret_borrow<py::object>(item.second));
  }

  bool has_changed() const {
    if (static_cast<size_t>(PyDict_Size(dictionary_.ptr())) != values_.size()) return true;
    PyObject *value = nullptr;
    Py_ssize_t position = 0;
    size_t i = 0;
    while (PyDict_Next(dictionary_.ptr(), &position, nullptr, &value)) {
      if (value != values_[i++].ptr()) return true;
    }
    return false;
  }

 private:
  py::dict dictionary_;
  Objects values_;
};

// A call that is under way.
struct Call {
  TensorPtrList inputs;
  TensorPtrList shared;  // parameters and buffers
  Objects views;         // PyTorch's tensors on the inputs
  Objects leaves;        // for each input whose gradient is needed, what its gradient is found at; else null
  bool records;
};

// A module as Python calls it.
class Module {
 public:
  // Args: what takes a value of PyTorch's apart into tensors and the rest (tree.results_with_data in
  // bridge/programs/tree.py); whether nobody's Python runs but PyTorch's.
  Module(std::string name, py::function take_apart, bool is_torch_code)
      : name_(std::move(name)), take_apart_(std::move(take_apart)), is_torch_code_(is_torch_code) {}
  ~Module() {
    if (in_graphs().erase(this) != 0) ++changes_of_graphs();
  }
  Module(const Module &) = delete;
  Module &operator=(const Module &) = delete;

  // Has MindSpore's parameter use the memory of PyTorch's tensor from now on. Returns its position.
  size_t share(py::object own, py::object torch) {
    shared_.emplace_back(std::move(own), std::move(torch));
    return shared_.size() - 1;
  }

  void replace(size_t position, py::object torch) { shared_.at(position).replace(std::move(torch)); }

  void leave_graphs(size_t position) { shared_.at(position).leave_graphs(); }

  void take_back(size_t position, int gpu) { shared_.at(position).take_back(shared_.at(position).tensor(), gpu); }

  // Those at these positions are in graphs now.
  void stay(const std::vector<size_t> &positions, int gpu) {
    in_graphs().insert(this);
    ++changes_of_graphs();
    gpu_of_graphs() = gpu;
    for (const size_t position : positions) shared_.at(position).stay(shared_.at(position).tensor(), gpu);
  }

  void follow_assigned() {
    for (Shared &shared : shared_) shared.follow_assigned();
  }

  // Has `has_changed` look at these dictionaries, in place of those before.
  void look_at(const py::list &dictionaries) { look(dictionaries, &looked_); }

  bool has_changed() const { return has_changed(looked_); }

  // Has `is_assigned` look at these dictionaries of buffers, in place of those before.
  void look_at_buffers(const py::list &dictionaries) { look(dictionaries, &buffers_); }

  // Those that graphs have. With the GIL.
  static std::set<const Module *> &in_graphs() {
    static auto *const all = new std::set<const Module *>;
    return *all;
  }

  // How often these have become others.
  static uint64_t &changes_of_graphs() {
    static uint64_t changes = 0;
    return changes;
  }

  // On a GPU: waits for what PyTorch writes to what graphs read.
  static void wait_before_graph() {
    if (gpu_of_graphs() >= 0) wait_for_torch(gpu_of_graphs());
  }

  bool has_one_of(const std::unordered_set<const void *> &tensors) const {
    return std::any_of(shared_.begin(), shared_.end(),
                       [&tensors](const Shared &shared) { return tensors.count(shared.tensor().get()) != 0; });
  }

  // Whether PyTorch may have other parameters, buffers, or data in them than MindSpore.
  bool is_assigned() const {
    return has_changed(looked_) || has_changed(buffers_) ||
           std::any_of(shared_.begin(), shared_.end(), [](const Shared &shared) { return shared.is_assigned(); });
  }

  void follow_requires_grad() {
    for (Shared &shared : shared_) shared.follow_requires_grad(shared.tensor());
  }

  std::vector<bool> are_trained() {
    std::vector<bool> found;
    for (Shared &shared : shared_) found.push_back(shared.is_trained(shared.tensor()));
    return found;
  }

  // Tells `take_left_out` what a backward pass has found for the parameters at these positions: None is nothing.
  void note_gradients(const std::vector<size_t> &positions, const py::list &gradients) const {
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto &received = shared_.at(positions[i]).received();
      (gradients[i].is_none() ? received->nothing : received->gradient) = true;
    }
  }

  // The positions of the parameters for which backward passes since the last call of this have found nothing.
  std::vector<size_t> take_left_out() const {
    std::vector<size_t> found;
    for (size_t i = 0; i < shared_.size(); ++i) {
      const bool has_gradient = shared_[i].received()->gradient.exchange(false);
      if (shared_[i].received()->nothing.exchange(false) && !has_gradient) found.push_back(i);
    }
    return found;
  }

  // Whether a parameter has, or had, hooks of PyTorch's for its gradient.
  bool has_hooks() const {
    return std::any_of(shared_.begin(), shared_.end(),
                       [](const Shared &shared) { return ::has_hooks(shared.torch()); });
  }

  // A digest (FNV-1a) of which parameters are trained and which have, or had, hooks; 0 if PyTorch may have assigned
  // something.
  uint64_t mark() {
    if (is_assigned()) return 0;
    uint64_t digest = 0xcbf29ce484222325;
    const auto add = [&digest](bool value) { digest = (digest ^ (value ? 1 : 0)) * 0x100000001b3; };
    for (Shared &shared : shared_) {
      add(shared.is_trained(shared.tensor()));
      add(::has_hooks(shared.torch()));
    }
    return digest;
  }

  // Whether MindSpore neither records nor casts what is called now.
  static bool runs_plainly() {
    return !mindspore::pynative::GradState::Get().grad_flag() && !ms_ext::pynative::has_mixed_precision();
  }

  // Args: run(torch.Tensor, ...), which runs the module; MindSpore's tensors; the GPU, or -1; whether modules have
  // hooks for the backward pass. Returns what it gave, with MindSpore's tensors in place of PyTorch's.
  py::object operator()(const py::object &run, const py::sequence &tensors, int gpu, bool has_hooks) {
    TORCH(ms_ext_is_torch);
    const OutsideInferenceMode outside_inference_mode;
    Call call;
    for (const py::handle tensor : tensors) call.inputs.push_back(tensor_of(tensor));
    call.shared.reserve(shared_.size());
    for (const Shared &shared : shared_) call.shared.push_back(shared.tensor());
    const auto place = place_of(call, gpu);
    for (size_t i = 0; i < shared_.size(); ++i) shared_[i].follow(call.shared[i], gpu);
    view(&call, gpu);
    if (gpu >= 0) wait_for_torch(gpu);
    const OnStream on_stream(place);
    py::object value;
    {
      const Recording recording(call.records);
      value = called(run, call.views);
    }
    for (size_t i = 0; i < shared_.size(); ++i) shared_[i].follow_torch(call.shared[i]);
    note_writes(call);
    const uint32_t stream_id = Place::stream_id_of(place);
    if (ms_ext_is_torch(value.ptr())) {
      const TensorPtr own = from_result(value, gpu, stream_id);
      if (call.records) record(call, {value}, {own}, gpu, has_hooks);
      return py::cast(ms::Tensor(own));
    }
    const py::object parts = take_apart_(value);
    const auto results = parts.attr("tensors").cast<Objects>();
    TensorPtrList own;
    py::list given;
    for (const py::object &result : results) {
      own.push_back(from_result(result, gpu, stream_id));
      given.append(py::cast(ms::Tensor(own.back())));
    }
    if (call.records) record(call, results, own, gpu, has_hooks);
    return parts.attr("with_tensors")(given);
  }

 private:
  static int &gpu_of_graphs() {
    static int gpu = -1;
    return gpu;
  }

  static void look(const py::list &dictionaries, std::vector<Looked> *looked) {
    looked->clear();
    for (const py::handle dictionary : dictionaries) looked->emplace_back(py::reinterpret_borrow<py::dict>(dictionary));
  }

  static bool has_changed(const std::vector<Looked> &looked) {
    return std::any_of(looked.begin(), looked.end(), [](const Looked &one) { return one.has_changed(); });
  }

  static std::shared_ptr<Place> place_of(const Call &call, int gpu) {
    const py::gil_scoped_release released;
    TensorPtrList all;
    if (gpu >= 0) {
      all = call.inputs;
      all.insert(all.end(), call.shared.begin(), call.shared.end());
    }
    return Place::of(all, gpu);
  }

  // Nobody may write to what MindSpore takes for an input of the whole computation, as nobody may in PyTorch.
  static ms_ext::Gradient needs(const TensorPtr &input) {
    using mindspore::pynative::autograd::impl::GetUnsafeGradNodeImpl;
    if (!ms_ext::pynative::has_gradient(input)) return ms_ext::Gradient::kNone;
    const auto node = GetUnsafeGradNodeImpl(input);
    return node == nullptr || node->IsLeaf() ? ms_ext::Gradient::kOfLeaf : ms_ext::Gradient::kOfResult;
  }

  static void view(Call *call, int gpu) {
    TORCH(ms_ext_to_torch);
    call->records = mindspore::pynative::GradState::Get().RequiresGrad();
    for (auto one = call->inputs.begin(); one != call->inputs.end(); ++one) {
      const TensorPtr &input = *one;
      const auto first = std::find(call->inputs.begin(), one, input);
      if (first != one) {  // given twice: one tensor in PyTorch too
        call->views.push_back(call->views[first - call->inputs.begin()]);
        call->leaves.emplace_back();
        continue;
      }
      const auto gradient = call->records ? needs(input) : ms_ext::Gradient::kNone;
      PyObject *leaf = nullptr;
      const TensorMemory memory = Owner::memory_of(input, gpu);
      auto found = py::reinterpret_steal<py::object>(ms_ext_to_torch(&memory, gradient, &leaf));
      check(static_cast<bool>(found));
      call->views.push_back(std::move(found));
      call->leaves.push_back(py::reinterpret_steal<py::object>(leaf));
    }
  }

  // Tells MindSpore which inputs the module wrote to.
  static void note_writes(const Call &call) {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (version(call.views[i]) != 0) call.inputs[i]->BumpVersion();
    }
  }

  void record(const Call &call, const Objects &results, const TensorPtrList &own, int gpu, bool has_hooks) const {
    TensorPtrList recorded, outputs, written;
    Objects leaves, roots;
    std::vector<std::shared_ptr<Received>> received;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (call.leaves[i]) {
        recorded.push_back(call.inputs[i]);
        leaves.push_back(call.leaves[i]);
        received.push_back(AllReceived::get().of(call.inputs[i]));
      }
      if (version(call.views[i]) == 0 || !requires_grad(call.views[i])) continue;
      written.push_back(call.inputs[i]);
      outputs.push_back(call.inputs[i]);
      roots.push_back(call.views[i]);
    }
    const size_t others = recorded.size();
    for (size_t i = 0; i < shared_.size(); ++i) {
      if (!shared_[i].requires_grad()) continue;
      recorded.push_back(call.shared[i]);
      leaves.push_back(shared_[i].torch());
      received.push_back(shared_[i].received());
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (!requires_grad(results[i])) continue;
      outputs.push_back(own[i]);
      roots.push_back(results[i]);
    }
    if (roots.empty()) return;
    auto owned = std::make_unique<Graph>(leaves, roots, is_torch_code_);
    Graph *graph = owned.get();
    auto node = std::make_shared<Recorded>(name_, roots.size(), std::move(owned), gpu, has_hooks, received, others);
    {
      const py::gil_scoped_release released;
      node->record(recorded, outputs, written);
      if (!written.empty()) mindspore::runtime::Pipeline::Get().WaitAll();
    }
    // Recording counts as a write to what the module wrote to.
    for (size_t i = 0; i < outputs.size(); ++i) graph->watch(outputs[i], roots[i]);
    for (size_t i = 0; i < call.inputs.size(); ++i) graph->watch(call.inputs[i], call.views[i]);
    for (size_t i = 0; i < shared_.size(); ++i) graph->watch(call.shared[i], shared_[i].torch());
  }

  std::string name_;
  py::function take_apart_;
  bool is_torch_code_;
  std::vector<Shared> shared_;
  std::vector<Looked> looked_, buffers_;
};

// The modules that have a Parameter of one of MindSpore's graphs.
class ModulesOfGraph {
 public:
  explicit ModulesOfGraph(const mindspore::FuncGraphPtr &graph) : graph_(graph) {
    for (const auto &node : graph->parameters()) {
      const auto parameter = node->cast<mindspore::ParameterPtr>();
      if (parameter == nullptr || !parameter->has_default()) continue;
      if (const auto own = parameter->default_param()->cast<TensorPtr>(); own != nullptr) tensors_.insert(own.get());
    }
  }

  // Before a run of the graph: whether PyTorch may have assigned something in one of them. On a GPU it waits for what
  // PyTorch writes. None if MindSpore has dropped the graph.
  py::object is_any_assigned() {
    if (graph_.expired()) return py::none();
    Module::wait_before_graph();
    if (changes_ != Module::changes_of_graphs()) find();
    return py::bool_(
        std::any_of(modules_.begin(), modules_.end(), [](const Module *one) { return one->is_assigned(); }));
  }

 private:
  void find() {
    modules_.clear();
    std::copy_if(Module::in_graphs().begin(), Module::in_graphs().end(), std::back_inserter(modules_),
                 [this](const Module *one) { return one->has_one_of(tensors_); });
    changes_ = Module::changes_of_graphs();
  }

  std::weak_ptr<mindspore::FuncGraph> graph_;
  std::unordered_set<const void *> tensors_;
  std::vector<const Module *> modules_;
  uint64_t changes_ = 0;
};

}  // namespace

void define_module(py::module &module) {
  module.def("address", [](const py::object &own) {
    return reinterpret_cast<uintptr_t>(data_of(mindspore::tensor::ConvertToTensor(own)));
  });
  // Ones as the tensor, by which a gradient begins; None if the tensor's dtype has no gradient.
  module.def("ones_like", [](const py::object &own, bool on_host) -> py::object {
    const TensorPtr tensor = tensor_of(own);
    if (!may_require_grad(tensor->data_type())) return py::none();
    const ms::Tensor ones(tensor->data_type(), tensor->shape());
    std::make_shared<ms_ext::pynative::Ones>(on_host)->Run({}, {ones});
    return py::cast(ones);
  });
  module.def("leave_out", [](const py::sequence &tensors) {
    for (const py::handle tensor : tensors) ms_ext::pynative::leave_out(tensor_of(tensor));
  });
  // Whether PyTorch's tensor is elsewhere than both were, and MindSpore's Parameter is not.
  module.def("is_assigned", [](const py::object &own, const py::object &torch) {
    const auto found = all_known().find(own.ptr());
    const auto known = found == all_known().end() ? nullptr : found->second.lock();
    return known != nullptr && known->torch.is(torch) &&
           data_of(mindspore::tensor::ConvertToTensor(own)) == known->data && address_of(torch) != known->data;
  });
  py::class_<Module>(module, "Module")
      .def(py::init<std::string, py::function, bool>())
      .def_static("tensor_on", [](const py::object &torch) { return ms::Tensor(from_torch(torch)); })
      .def("share", &Module::share)
      .def("replace", &Module::replace)
      .def("leave_graphs", &Module::leave_graphs)
      .def("take_back", &Module::take_back)
      .def("stay", &Module::stay)
      .def("follow_assigned", &Module::follow_assigned)
      .def("look_at", &Module::look_at)
      .def("has_changed", py::overload_cast<>(&Module::has_changed, py::const_))
      .def("look_at_buffers", &Module::look_at_buffers)
      .def("is_assigned", &Module::is_assigned)
      .def("follow_requires_grad", &Module::follow_requires_grad)
      .def("are_trained", &Module::are_trained)
      .def("note_gradients", &Module::note_gradients)
      .def("take_left_out", &Module::take_left_out)
      .def("has_hooks", &Module::has_hooks)
      .def("mark", &Module::mark)
      .def_static("runs_plainly", &Module::runs_plainly)
      .def("__call__", &Module::operator());
  py::class_<ModulesOfGraph>(module, "ModulesOfGraph")
      .def(py::init<const mindspore::FuncGraphPtr &>())
      .def("is_any_assigned", &ModulesOfGraph::is_any_assigned);
}

// A compiled graph on the CPU all of whose kernels are the bridge's: its calls, one after another, with nothing of
// MindSpore's executor around them, which takes as long as the kernels of a small network. MindSpore has compiled the
// graph; this reads what it came to. With anything in it that is not known here, MindSpore runs it.
#include "mindspore/python/own_graph.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abstract/abstract_value.h"
#include "function_of.h"
#include "include/utils/convert_utils_py.h"
#include "ir/func_graph.h"
#include "ir/graph_utils.h"
#include "ir/primitive.h"
#include "ir/tensor.h"
#include "ir/value.h"
#include "mindspore/python/dtype.h"
#include "mindspore/python/host_memory.h"
#include "mindspore/python/opened_shim.h"
#include "mindspore/python/queues.h"
#include "mindspore/python/runner.h"
#include "mindspore/python/tensor_object.h"
#include "programs/pool_memory.h"

namespace {

using mindspore::AnfNode;
using mindspore::AnfNodePtr;
using mindspore::CNodePtr;
using mindspore::PrimitivePtr;
using mindspore::ValuePtr;
using mindspore::tensor::TensorPtr;
using mindspore::tensor::TensorPtrList;
using ms_ext::DType;
using ms_ext::pynative::Shim;
namespace abstract = mindspore::abstract;
using mindspore::ShapeVector;

// The graph has something that is not known here.
struct Unknown {};

void need(bool is_so) {
  if (!is_so) throw Unknown();
}

// A tensor of a graph.
struct Tensor {
  const DType *dtype;
  ShapeVector shape;
  size_t bytes;
  size_t memory;   // whose memory it is: its own number, or that of the tensor of which it is another form
  bool is_number;  // for MindSpore

  bool is_like(const TensorPtr &tensor) const { return tensor->data_type() == dtype->id && tensor->shape() == shape; }
};

// What a node gives.
struct Given {
  enum class Kind { kOrder, kTensor, kTuple, kConstant } kind;
  size_t tensor = 0;
  const AnfNode *read = nullptr;  // where it is read, if it is a Parameter's
  std::vector<std::shared_ptr<const Given>> items;
  ValuePtr constant;
};

using GivenPtr = std::shared_ptr<const Given>;

GivenPtr given_tensor(size_t tensor, const AnfNode *read) {
  return std::make_shared<const Given>(Given{Given::Kind::kTensor, tensor, read, {}, nullptr});
}

// A call of a kernel, with what it takes for the launch.
struct Step {
  std::unique_ptr<Shim> shim;
  bool is_program;     // which may bring the memory of what it gives, and free what it takes
  bool brings_memory;  // it does so
  std::vector<size_t> inputs, outputs;
  std::vector<const AnfNode *> reads;  // of inputs
  std::vector<size_t> last_uses;       // whose memory nobody needs after it
  bool writes;                         // it may write to what it takes
  const AnfNode *node;
  std::vector<int> ndims;
  std::vector<int64_t *> shapes;
  std::vector<const char *> dtypes;
};

// Where a Parameter's or a constant's data is.
struct Kept {
  size_t tensor;
  TensorPtr own;
};

std::string known_attribute(const PrimitivePtr &primitive, const char *name) {
  const ValuePtr value = primitive->GetAttr(name);
  need(value != nullptr && value->isa<mindspore::StringImm>());
  return mindspore::GetValue<std::string>(value);
}

bool is_set(const PrimitivePtr &primitive, const char *name) {
  const ValuePtr value = primitive->GetAttr(name);
  return value != nullptr && value->isa<mindspore::BoolImm>() && mindspore::GetValue<bool>(value);
}

// What a graph consists of.
class Plan {
 public:
  explicit Plan(const mindspore::FuncGraphPtr &graph) {
    for (const AnfNodePtr &parameter : graph->parameters()) read_parameter(parameter->cast<mindspore::ParameterPtr>());
    for (const AnfNodePtr &node : mindspore::TopoSort(graph->get_return())) {
      if (node->isa<mindspore::CNode>()) {
        need(node->func_graph() == graph);
        read(node->cast<CNodePtr>());
        note_writes_before(node->cast<CNodePtr>());
      }
    }
    check_order();
    plan_memory(graph->output()->abstract());
    given_.clear();  // the nodes are MindSpore's
    writes_before_.clear();
    writing_.clear();
  }

  size_t arguments = 0;  // the first tensors
  std::vector<Tensor> tensors;
  std::vector<Kept> kept;
  std::vector<Step> steps;
  GivenPtr result;

 private:
  size_t add(const abstract::AbstractBasePtr &of) {
    const auto tensor = of->cast<abstract::AbstractTensorPtr>();
    need(tensor != nullptr || of->isa<abstract::AbstractScalar>());
    const ShapeVector shape = tensor == nullptr ? ShapeVector() : tensor->shape()->shape();
    const auto type = tensor == nullptr ? of->BuildType() : tensor->element()->BuildType();
    return add(type->type_id(), shape, tensor == nullptr);
  }

  size_t add(mindspore::TypeId type, const ShapeVector &shape, bool is_number = false) {
    const DType *dtype = ms_ext::find(type);
    need(dtype != nullptr);
    size_t bytes = dtype->size;
    for (const int64_t size : shape) {
      need(size >= 0);  // known
      bytes *= static_cast<size_t>(size);
    }
    tensors.push_back({dtype, shape, bytes, tensors.size(), is_number});
    return tensors.size() - 1;
  }

  void read_parameter(const mindspore::ParameterPtr &parameter) {
    need(parameter != nullptr && parameter->abstract() != nullptr);
    const size_t tensor = add(parameter->abstract());
    if (parameter->has_default()) {
      const auto own = parameter->default_param()->cast<TensorPtr>();
      need(own != nullptr);
      kept.push_back({tensor, own});
    } else {
      need(kept.empty());
      ++arguments;
    }
    given_[parameter.get()] = given_tensor(tensor, nullptr);
  }

  GivenPtr given(const AnfNodePtr &node) {
    GivenPtr &found = given_[node.get()];
    if (found == nullptr) {
      need(node->isa<mindspore::ValueNode>());
      found = constant(mindspore::GetValueNode(node));
    }
    return found;
  }

  GivenPtr constant(const ValuePtr &value) {
    if (value->isa<mindspore::Monad>()) return order();
    if (const auto tensor = value->cast<TensorPtr>(); tensor != nullptr) {
      const size_t added = add(tensor->data_type(), tensor->shape());
      kept.push_back({added, tensor});
      return given_tensor(added, nullptr);
    }
    Given made{Given::Kind::kConstant, 0, nullptr, {}, value};
    if (const auto tuple = value->cast<mindspore::ValueTuplePtr>(); tuple != nullptr) {
      need(value->tid() == mindspore::ValueTuple::kTypeId);
      made.kind = Given::Kind::kTuple;
      for (const ValuePtr &item : tuple->value()) made.items.push_back(constant(item));
    } else {
      need(value->isa<mindspore::Scalar>() || value->isa<mindspore::StringImm>() || value->isa<mindspore::None>());
    }
    return std::make_shared<const Given>(std::move(made));
  }

  static GivenPtr order() {
    static const auto order = std::make_shared<const Given>(Given{Given::Kind::kOrder, 0, nullptr, {}, nullptr});
    return order;
  }

  void read(const CNodePtr &node) {
    const PrimitivePtr primitive = mindspore::GetCNodePrimitive(node);
    need(primitive != nullptr);
    const std::string name = primitive->name();
    if (name == "Custom") return read_call(node, primitive);
    GivenPtr &made = given_[node.get()];
    if (name == "Return") {
      made = result = given(node->input(1));
    } else if (name == "Load") {
      const GivenPtr of = given(node->input(1));
      need(of->kind == Given::Kind::kTensor);
      made = given_tensor(of->tensor, node.get());
    } else if (name == "MakeTuple") {
      Given tuple{Given::Kind::kTuple, 0, nullptr, {}, nullptr};
      for (size_t i = 1; i < node->size(); ++i) tuple.items.push_back(given(node->input(i)));
      made = std::make_shared<const Given>(std::move(tuple));
    } else if (name == "TupleGetItem") {
      const GivenPtr of = given(node->input(1)), index = given(node->input(2));
      need(of->kind == Given::Kind::kTuple && index->constant != nullptr &&
           index->constant->isa<mindspore::Int64Imm>());
      made = of->items.at(mindspore::GetValue<int64_t>(index->constant));
    } else if (name == "Depend") {
      made = given(node->input(1));
    } else if (name == "UpdateState") {
      made = order();
    } else if (name == "PyExecute") {  // Python's None is an expression here
      const ValuePtr expression = given(node->input(1))->constant;
      need(expression != nullptr && expression->isa<mindspore::StringImm>());
      need(mindspore::GetValue<std::string>(expression) == "None");
      made = constant(mindspore::kNone);
    } else if (name == "Reshape") {
      const GivenPtr of = given(node->input(1));
      need(of->kind == Given::Kind::kTensor);
      const size_t other = add(node->abstract());
      need(tensors[other].bytes == tensors[of->tensor].bytes && tensors[other].dtype == tensors[of->tensor].dtype);
      tensors[other].memory = tensors[of->tensor].memory;
      made = given_tensor(other, of->read);
    } else {
      throw Unknown();
    }
  }

  void read_call(const CNodePtr &node, const PrimitivePtr &primitive) {
    need(known_attribute(primitive, "aten_device") == "CPU");
    need(!is_set(primitive, "output_is_dynamic_shape") && !is_set(primitive, "input_is_dynamic_shape"));
    Step step{};
    step.node = node.get();
    for (size_t i = 1; i < node->size(); ++i) take(given(node->input(i)), &step);
    if (step.writes) writing_.insert(step.node);
    GivenPtr &made = given_[node.get()];
    made = give(node->abstract(), &step);
    const std::string where = known_attribute(primitive, "func_name");
    const size_t colon = where.rfind(':');
    need(colon != std::string::npos);
    const std::string function = where.substr(colon + 1);
    step.is_program = function == "aten_program";
    step.shim = std::make_unique<Shim>(where.substr(0, colon), function, true, true,
                                       known_attribute(primitive, "aten_op"), known_attribute(primitive, "aten_args"));
    steps.push_back(std::move(step));
  }

  void take(const GivenPtr &of, Step *step) const {
    switch (of->kind) {
      case Given::Kind::kOrder:
        step->writes = true;
        return;
      case Given::Kind::kTensor:
        step->inputs.push_back(of->tensor);
        step->reads.push_back(of->read == nullptr ? step->node : of->read);
        return;
      case Given::Kind::kTuple:
        for (const GivenPtr &item : of->items) take(item, step);
        return;
      default:
        throw Unknown();
    }
  }

  GivenPtr give(const abstract::AbstractBasePtr &of, Step *step) {
    const auto tuple = of->cast<abstract::AbstractTuplePtr>();
    if (tuple == nullptr) {
      step->outputs.push_back(add(of));
      return given_tensor(step->outputs.back(), nullptr);
    }
    need(!tuple->dynamic_len());
    Given made{Given::Kind::kTuple, 0, nullptr, {}, nullptr};
    for (const auto &element : tuple->elements()) made.items.push_back(give(element, step));
    return std::make_shared<const Given>(std::move(made));
  }

  // Which of the calls that may write a node comes after. Its inputs are known.
  void note_writes_before(const CNodePtr &node) {
    std::set<const AnfNode *> &all = writes_before_[node.get()];
    for (const AnfNodePtr &input : node->inputs()) {
      if (writing_.count(input.get()) != 0) all.insert(input.get());
      const auto before = writes_before_.find(input.get());
      if (before != writes_before_.end()) all.insert(before->second.begin(), before->second.end());
    }
  }

  // What a call reads that another one writes to, it reads where that has written. So it has to be meant so: MindSpore
  // copies what is read before, and used after.
  void check_order() {
    std::unordered_map<size_t, std::vector<const AnfNode *>> writers;
    for (const Step &step : steps) {
      for (size_t i = 0; i < step.inputs.size(); ++i) {
        const auto found = writers.find(tensors[step.inputs[i]].memory);
        if (found == writers.end()) continue;
        const auto &before = writes_before_[step.reads[i]];
        for (const AnfNode *writer : found->second) need(before.count(writer) != 0);
      }
      if (!step.writes) continue;
      for (size_t i = 0; i < step.inputs.size(); ++i) {  // a Load is for what only reads
        if (step.reads[i] == step.node) writers[tensors[step.inputs[i]].memory].push_back(step.node);
      }
    }
  }

  // Args: what MindSpore knows of the result.
  void plan_memory(const abstract::AbstractBasePtr &type) {
    std::set<size_t> made, needed;
    for (const Step &step : steps) made.insert(step.outputs.begin(), step.outputs.end());
    std::set<size_t> results;
    note_results(result, type, made, &results);
    for (size_t i = steps.size(); i-- > 0;) {
      Step &step = steps[i];
      for (const auto *all : {&step.inputs, &step.outputs}) {
        for (const size_t tensor : *all) {
          const size_t memory = tensors[tensor].memory;
          if (made.count(memory) != 0 && results.count(memory) == 0 && needed.insert(memory).second) {
            step.last_uses.push_back(memory);
          }
          step.ndims.push_back(static_cast<int>(tensors[tensor].shape.size()));
          step.shapes.push_back(tensors[tensor].shape.data());
          step.dtypes.push_back(tensors[tensor].dtype->name);
        }
      }
      step.brings_memory = step.is_program && std::any_of(step.outputs.begin(), step.outputs.end(), [this](size_t one) {
                             return tensors[one].bytes >= ms_ext::kSmallestInPool;
                           });
    }
  }

  // Each result has memory of its own, and is for Python what it is here.
  void note_results(const GivenPtr &of, const abstract::AbstractBasePtr &type, const std::set<size_t> &made,
                    std::set<size_t> *results) const {
    need(of->kind != Given::Kind::kOrder && type != nullptr);
    if (of->kind == Given::Kind::kTuple) {
      need(type->tid() == abstract::AbstractTuple::kTypeId);
      const auto elements = type->cast<abstract::AbstractTuplePtr>()->elements();
      need(elements.size() == of->items.size());
      for (size_t i = 0; i < elements.size(); ++i) note_results(of->items[i], elements[i], made, results);
    } else if (of->kind == Given::Kind::kTensor) {
      const Tensor &tensor = tensors[of->tensor];
      need(made.count(tensor.memory) != 0 && results->insert(tensor.memory).second && tensor.bytes != 0);
      need(tensor.is_number ? type->isa<abstract::AbstractScalar>() && tensor.dtype->id == mindspore::kNumberTypeBool
                            : type->isa<abstract::AbstractTensor>());
    }
  }

  std::unordered_map<const AnfNode *, GivenPtr> given_;
  std::unordered_map<const AnfNode *, std::set<const AnfNode *>> writes_before_;
  std::set<const AnfNode *> writing_;
};

// Memory that a run has got.
struct Owned {
  void *data = nullptr;
  bool in_pool = false;

  void release() {
    if (data == nullptr) return;
    if (in_pool) {
      ms_ext::pynative::release_on_host(data);
    } else {
      std::free(data);
    }
    data = nullptr;
  }
};

constexpr size_t kAlignment = 64;  // as PyTorch's

// One run of a plan.
class Run {
 public:
  explicit Run(const Plan &plan) : plan_(plan), data_(plan.tensors.size()), owned_(plan.tensors.size()) {}
  ~Run() {
    for (Owned &owned : owned_) owned.release();
  }
  Run(const Run &) = delete;
  Run &operator=(const Run &) = delete;

  // Whether all tensors are where the kernels can take them.
  bool place(const TensorPtrList &arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!place(i, arguments[i])) return false;
    }
    return std::all_of(plan_.kept.begin(), plan_.kept.end(),
                       [this](const Kept &kept) { return place(kept.tensor, kept.own); });
  }

  void run() {
    for (const Step &step : plan_.steps) {
      run(step);
      for (const size_t tensor : step.last_uses) owned_[tensor].release();
    }
  }

  // With the GIL.
  py::object result() { return result(plan_.result); }

 private:
  // What a program is told about memory.
  struct Launch {
    Run *run;
    const Step *step;

    static void *take_input(void *launch, size_t position) {
      const auto [run, step] = *static_cast<Launch *>(launch);
      const size_t memory = run->plan_.tensors[step->inputs.at(position)].memory;
      const auto is_same = [run = run, memory](size_t other) { return run->plan_.tensors[other].memory == memory; };
      const bool is_last = std::find(step->last_uses.begin(), step->last_uses.end(), memory) != step->last_uses.end();
      if (!is_last || std::count_if(step->inputs.begin(), step->inputs.end(), is_same) > 1) return nullptr;
      Owned &owned = run->owned_[memory];
      return owned.in_pool ? std::exchange(owned.data, nullptr) : nullptr;
    }

    static void give_output(void *launch, size_t position, void *data) {
      const auto [run, step] = *static_cast<Launch *>(launch);
      const size_t output = step->outputs.at(position);
      run->owned_[output] = {data, true};
      run->data_[output] = data;
    }
  };

  bool place(size_t tensor, const TensorPtr &own) {
    if (plan_.tensors[tensor].bytes == 0) {
      data_[tensor] = ms_ext::pynative::kNothing;
      return plan_.tensors[tensor].is_like(own);
    }
    const auto &address = own->device_address();
    if (address == nullptr || address->GetDeviceType() != mindspore::device::DeviceType::kCPU) return false;
    if (address->GetMutablePtr() == nullptr || !own->is_contiguous()) return false;
    if (!plan_.tensors[tensor].is_like(own)) return false;
    data_[tensor] = ms_ext::pynative::data_of(own);
    return true;
  }

  void run(const Step &step) {
    std::vector<void *> params;
    params.reserve(step.ndims.size());
    for (const size_t input : step.inputs) params.push_back(data_[plan_.tensors[input].memory]);
    for (const size_t output : step.outputs) {
      if (plan_.tensors[output].bytes == 0) {
        data_[output] = ms_ext::pynative::kNothing;
      } else if (!step.brings_memory) {
        allocate(output);
      }
      params.push_back(data_[output]);
    }
    auto *const ndims = const_cast<int *>(step.ndims.data());
    auto *const shapes = const_cast<int64_t **>(step.shapes.data());
    auto *const dtypes = const_cast<const char **>(step.dtypes.data());
    const int count = static_cast<int>(params.size());
    if (step.is_program) {
      static auto *const launch = ms_ext::function_of<ms_ext::LaunchProgram>("libms_ext.so", "ms_ext_launch_program");
      Launch one{this, &step};
      const ms_ext::PoolMemory memory{ms_ext::pynative::allocate_on_host, ms_ext::pynative::release_on_host, &one,
                                      Launch::take_input, Launch::give_output};
      launch(count, params.data(), ndims, shapes, dtypes, &step.shim->extra, &memory);
    } else {
      step.shim->launch(count, params.data(), ndims, shapes, dtypes, nullptr, &step.shim->extra);
    }
  }

  void allocate(size_t tensor) {
    const size_t bytes = plan_.tensors[tensor].bytes;
    const bool in_pool = bytes >= ms_ext::kSmallestInPool;
    void *const data = in_pool ? ms_ext::pynative::allocate_on_host(bytes)
                               : std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (data == nullptr) {
      throw std::runtime_error("out of memory: MindSpore cannot allocate " + std::to_string(bytes) + " bytes");
    }
    owned_[tensor] = {data, in_pool};
    data_[tensor] = data;
  }

  py::object result(const GivenPtr &of) {
    if (of->kind == Given::Kind::kConstant) return mindspore::ValueToPyData(of->constant);
    if (of->kind == Given::Kind::kTuple) {
      py::tuple items(of->items.size());
      for (size_t i = 0; i < of->items.size(); ++i) items[i] = result(of->items[i]);
      return std::move(items);
    }
    const Tensor &tensor = plan_.tensors[of->tensor];
    if (tensor.is_number) return py::bool_(*static_cast<const bool *>(data_[tensor.memory]));
    Owned owned = std::exchange(owned_[tensor.memory], {});
    auto address = std::make_shared<mindspore::device::DeviceAddress>(owned.data, tensor.bytes,
                                                                      mindspore::device::DeviceType::kCPU, 0);
    address->SetDevicePointerDeleter([owned](void *, bool) mutable { owned.release(); });
    return py::cast(ms::Tensor(std::make_shared<mindspore::tensor::Tensor>(tensor.dtype->id, tensor.shape, address)));
  }

  const Plan &plan_;
  std::vector<void *> data_;
  std::vector<Owned> owned_;
};

class OwnGraph {
 public:
  explicit OwnGraph(std::unique_ptr<const Plan> plan) : plan_(std::move(plan)) {}

  // None if MindSpore has to run the graph.
  static py::object of(const mindspore::FuncGraphPtr &graph) {
    try {
      return py::cast(OwnGraph(std::make_unique<const Plan>(graph)));
    } catch (const Unknown &) {
      return py::none();
    }
  }

  // What the graph gives for MindSpore's tensors, which are like those that it was compiled for; NotImplemented if
  // MindSpore has to run it this time.
  py::object operator()(const py::args &arguments) {
    TensorPtrList given;
    for (const py::handle argument : arguments) given.push_back(ms_ext::pynative::tensor_of(argument));
    Run run(*plan_);
    bool is_possible = given.size() == plan_->arguments;
    if (is_possible) {
      const py::gil_scoped_release released;
      ms_ext::wait_for_mindspore(true);
      is_possible = run.place(given);
      if (is_possible) run.run();
    }
    return is_possible ? run.result() : py::reinterpret_borrow<py::object>(Py_NotImplemented);
  }

 private:
  std::unique_ptr<const Plan> plan_;
};

}  // namespace

void define_own_graph(py::module &module) {
  py::class_<OwnGraph>(module, "OwnGraph").def_static("of", &OwnGraph::of).def("__call__", &OwnGraph::operator());
}

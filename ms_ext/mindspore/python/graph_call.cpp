// What MindSpore asks for the graph of a call, while it compiles one that has the call in it.
//
// A function of Python plans it from all that is known of the arguments, and gives an expression
// (bridge/primitive/graph_calls.py); this makes the few nodes that it says.
#include "mindspore/python/graph_call.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abstract/abstract_value.h"
#include "include/utils/convert_utils_py.h"
#include "ir/func_graph.h"
#include "ir/func_graph_flag.h"
#include "ir/meta_func_graph.h"
#include "ir/primitive.h"
#include "ir/value.h"
#include "mindspore/python/python_object.h"
#include "pybind11/stl.h"
#include "utils/log_adapter.h"

namespace mindspore::parse {
// Of MindSpore's compiler, in a header that its wheels lack: a Python object as a constant of a graph.
bool ConvertData(const py::object &object, ValuePtr *data, bool use_signature, const TypePtr &dtype, bool forbid_reuse);
}  // namespace mindspore::parse

namespace {

using mindspore::AnfNodePtr;
using mindspore::ConstStringHash;  // which MS_DECLARE_PARENT names
using mindspore::FuncGraphPtr;
using mindspore::NewValueNode;
using mindspore::ValuePtr;
namespace abstract = mindspore::abstract;

// The classes of bridge/primitive/graph_calls.py.
py::object python_class(const char *name) { return py::module::import("bridge.primitive.graph_calls").attr(name); }

// What is known of an argument: a value, or a mark for a tensor or a number that has none yet. Its path says where it
// is: the number of the parameter, then positions in tuples and lists and keys of dictionaries.
py::object described(const abstract::AbstractBasePtr &argument, const py::tuple &path) {
  const auto inside = [&path](const py::object &key) { return py::tuple(path + py::make_tuple(key)); };
  if (const auto tensor = argument->cast<abstract::AbstractTensorPtr>(); tensor != nullptr) {
    const py::object dtype = mindspore::ValueToPyData(tensor->element()->BuildType());
    const auto known_as = reinterpret_cast<uintptr_t>(argument.get());
    return python_class("GraphTensor")(path, py::tuple(py::cast(tensor->shape()->shape())), dtype, known_as);
  }
  const auto sequence = argument->cast<abstract::AbstractSequencePtr>();
  if (sequence != nullptr && !sequence->dynamic_len()) {
    py::list items;
    const bool is_list = argument->isa<abstract::AbstractList>();
    for (const auto &element : sequence->elements()) {
      // A position in a list is one less than zero, and so told from one in a tuple.
      const auto position = static_cast<int64_t>(items.size());
      items.append(described(element, inside(py::int_(is_list ? -1 - position : position))));
    }
    return is_list ? py::object(items) : py::tuple(items);
  }
  if (const auto dictionary = argument->cast<abstract::AbstractDictionaryPtr>(); dictionary != nullptr) {
    py::dict items;
    for (const auto &[key, element] : dictionary->elements()) {
      const py::object name = mindspore::ValueToPyData(key->BuildValue());
      // Another key than a string is told from a position by the tuple around it.
      items[name] = described(element, inside(py::isinstance<py::str>(name) ? name : py::make_tuple(name)));
    }
    return items;
  }
  const ValuePtr value = argument->BuildValue();
  if (value->ContainsValueAny()) return python_class("GraphNumber")(path, argument->BuildType()->ToString());
  return mindspore::ValueToPyData(value, argument);
}

AnfNodePtr primitive(const char *name) { return NewValueNode(std::make_shared<mindspore::Primitive>(name)); }

// A function and its gradient. MindSpore's pointers from one to the other do not keep them.
struct Differentiable {
  Differentiable() {
    function->transforms().emplace("bprop", mindspore::FuncGraphTransform(gradient));
    gradient->transforms().emplace("primal", mindspore::FuncGraphTransform(function));
    function->set_flag(mindspore::FUNC_GRAPH_FLAG_DEFER_INLINE, true);  // until MindSpore has differentiated
  }

  FuncGraphPtr function = std::make_shared<mindspore::FuncGraph>();
  FuncGraphPtr gradient = std::make_shared<mindspore::FuncGraph>();  // of the arguments, the result and its gradient
};

// Makes a tuple of its arguments, and of Parameters the data that they have at this point of the program: MindSpore
// gives a Load its place among the writes to a Parameter, and makes none itself for what is in a tuple. With
// MindSpore's own gradient, a Load takes 1.6 ms and 170 KB to compile.
Differentiable tuple_of(const std::vector<bool> &loads) {
  Differentiable made;
  const auto &[function, gradient] = made;
  mindspore::AnfNodePtrList items = {primitive("MakeTuple")};
  for (const bool load : loads) {
    const AnfNodePtr argument = function->add_parameter();
    gradient->add_parameter();
    items.push_back(load ? function->NewCNodeInOrder({primitive("Load"), argument, NewValueNode(mindspore::kUMonad)})
                         : argument);
  }
  function->set_output(function->NewCNodeInOrder(std::move(items)));
  gradient->add_parameter();
  const AnfNodePtr of_result = gradient->add_parameter();
  mindspore::AnfNodePtrList of_arguments = {primitive("MakeTuple")};
  for (size_t i = 0; i < loads.size(); ++i) {
    const AnfNodePtr position = NewValueNode(static_cast<int64_t>(i));
    of_arguments.push_back(gradient->NewCNodeInOrder({primitive("TupleGetItem"), of_result, position}));
  }
  gradient->set_output(gradient->NewCNodeInOrder(std::move(of_arguments)));
  return made;
}

AnfNodePtr constant(const py::object &object) {
  ValuePtr value;
  if (!mindspore::parse::ConvertData(object, &value, false, nullptr, false) || value == nullptr) {
    throw py::type_error("MindSpore has no form in a graph for " + std::string(py::repr(object)));
  }
  return NewValueNode(value);
}

// Makes the nodes of an expression: what its Python objects say once stands in the graph once.
class Nodes {
 public:
  // `kept` takes what has to live as long as MindSpore may differentiate the nodes.
  Nodes(FuncGraphPtr graph, const abstract::AbstractBasePtrList &arguments, std::vector<Differentiable> &kept)
      : graph_(std::move(graph)), arguments_(arguments), kept_(kept) {}

  AnfNodePtr of(const py::object &expression) {
    AnfNodePtr &node = made_[expression.ptr()];
    if (node == nullptr) node = make(expression);
    return node;
  }

 private:
  AnfNodePtr make(const py::object &expression) {
    const auto is = [&expression](const char *name) { return py::isinstance(expression, python_class(name)); };
    if (py::isinstance<py::tuple>(expression)) return tuple(expression);
    if (is("Call")) return call(constant(expression.attr("function")), expression.attr("arguments"));
    if (is("Part")) return at(expression.attr("path"));
    if (is("Item")) {
      return item("TupleGetItem", of(expression.attr("of")), NewValueNode(expression.attr("index").cast<int64_t>()));
    }
    return constant(expression);
  }

  AnfNodePtr call(const AnfNodePtr &function, const py::object &arguments) {
    mindspore::AnfNodePtrList nodes = {function};
    for (const py::handle &argument : arguments) nodes.push_back(of(py::reinterpret_borrow<py::object>(argument)));
    return graph_->NewCNodeInOrder(std::move(nodes));
  }

  AnfNodePtr tuple(const py::tuple &items) {
    py::list parts;
    std::vector<bool> loads;
    for (const py::handle &item : items) {
      const bool is_read = py::isinstance(item, python_class("Read"));
      parts.append(is_read ? item.attr("part") : py::reinterpret_borrow<py::object>(item));
      loads.push_back(is_read && is_parameter(item.attr("part").attr("path")));
    }
    if (std::find(loads.begin(), loads.end(), true) == loads.end()) return call(primitive("MakeTuple"), parts);
    return call(NewValueNode(kept_.emplace_back(tuple_of(loads)).function), parts);
  }

  bool is_parameter(const py::tuple &path) const {
    abstract::AbstractBasePtr found = arguments_.at(path[0].cast<size_t>());
    for (size_t i = 1; i < path.size(); ++i) {
      const auto sequence = found->cast<abstract::AbstractSequencePtr>();
      if (sequence == nullptr || !py::isinstance<py::int_>(path[i])) return false;
      const auto position = path[i].cast<int64_t>();
      found = sequence->elements().at(position < 0 ? -1 - position : position);
    }
    return found->isa<abstract::AbstractRefTensor>();
  }

  AnfNodePtr at(const py::tuple &path) {
    AnfNodePtr node = graph_->parameters().at(path[0].cast<size_t>());
    for (size_t i = 1; i < path.size(); ++i) {
      if (py::isinstance<py::str>(path[i])) {
        node = item("dict_getitem", node, NewValueNode(path[i].cast<std::string>()));
      } else if (py::isinstance<py::tuple>(path[i])) {
        node = item("dict_getitem", node, constant(py::tuple(path[i])[0]));
      } else if (const auto position = path[i].cast<int64_t>(); position < 0) {
        node = item("list_getitem", node, NewValueNode(-1 - position));
      } else {
        node = item("TupleGetItem", node, NewValueNode(position));
      }
    }
    return node;
  }

  AnfNodePtr item(const char *getter, const AnfNodePtr &of, const AnfNodePtr &which) {
    return graph_->NewCNodeInOrder({primitive(getter), of, which});
  }

  FuncGraphPtr graph_;
  const abstract::AbstractBasePtrList &arguments_;
  std::vector<Differentiable> &kept_;
  std::unordered_map<PyObject *, AnfNodePtr> made_;
};

class GraphCall final : public mindspore::MetaFuncGraph {
 public:
  GraphCall(const std::string &name, py::object plan) : MetaFuncGraph(name), plan_(std::move(plan)) {}
  MS_DECLARE_PARENT(GraphCall, MetaFuncGraph)

  // What the plan raises gets the user's line from MindSpore.
  FuncGraphPtr GenerateFuncGraph(const abstract::AbstractBasePtrList &arguments) override {
    const py::gil_scoped_acquire gil;
    auto graph = std::make_shared<mindspore::FuncGraph>();
    py::list known;
    for (const auto &argument : arguments) {
      known.append(described(argument, py::make_tuple(known.size())));
      graph->add_parameter();
    }
    const py::object expression = (*plan_)(*known);
    graph->set_output(Nodes(graph, arguments, kept_).of(expression));
    return graph;
  }

 private:
  ms_ext::pynative::PythonObject plan_;
  std::vector<Differentiable> kept_;
};

// See bridge/primitive/direct.py.
std::string graph_location() {
  std::ostringstream location;
  const auto &provider = mindspore::LogWriter::GetTraceProvider();
  if (provider) provider(location, false);
  return location.str();
}

}  // namespace

void define_graph_call(py::module &module) {
  py::class_<GraphCall, mindspore::MetaFuncGraph, std::shared_ptr<GraphCall>>(module, "GraphCall")
      .def(py::init<const std::string &, py::object>());
  module.def("graph_location", &graph_location);
}

// Where in the program the calls of a compiled graph stand: for errors of the data that they are given.
#include "mindspore/python/places.h"

#include <string>
#include <vector>

#include "ir/func_graph.h"
#include "ir/graph_utils.h"
#include "ir/primitive.h"
#include "ir/value.h"
#include "utils/info.h"
#include "utils/trace_base.h"
#include "utils/trace_info.h"

namespace {

using mindspore::AnfNodePtr;
using mindspore::DebugInfoPtr;

// As MindSpore writes them, innermost first.
std::vector<std::string> places_of(const AnfNodePtr &node) {
  std::vector<std::string> found;
  for (DebugInfoPtr info = node->debug_info(); info != nullptr;) {
    std::string place = mindspore::trace::GetDebugInfoStr(info);
    if (!place.empty()) found.push_back(std::move(place));
    const auto from = info->trace_info();
    info = from == nullptr ? nullptr : from->debug_info();
  }
  return found;
}

// Whether an operator's name is this one, to which others may be added after a space.
bool is_named(const std::string &own, const std::string &name) {
  return own.rfind(name, 0) == 0 && (own.size() == name.size() || own[name.size()] == ' ');
}

// Those of each call of an operator of the bridge's, which has this name.
std::vector<std::vector<std::string>> places(const mindspore::FuncGraphPtr &graph, const std::string &name) {
  std::vector<std::vector<std::string>> found;
  for (const AnfNodePtr &node : mindspore::TopoSort(graph->get_return(), mindspore::SuccDeeperSimple)) {
    const auto primitive = mindspore::GetCNodePrimitive(node);
    const auto own = primitive == nullptr ? nullptr : primitive->GetAttr("aten_op");
    if (own != nullptr && is_named(mindspore::GetValue<std::string>(own), name)) found.push_back(places_of(node));
  }
  return found;
}

}  // namespace

void define_places(py::module &module) { module.def("places", &places); }

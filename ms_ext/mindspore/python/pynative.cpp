// The Python module _pynative. Compiled, like all in this folder, with MindSpore's headers and string ABI.
#include "mindspore/python/graph_call.h"
#include "mindspore/python/kernel.h"
#include "mindspore/python/mixed_precision.h"
#include "mindspore/python/module.h"
#include "mindspore/python/own_graph.h"
#include "mindspore/python/places.h"
#include "mindspore/python/program_kernel.h"
#include "mindspore/python/queues.h"
#include "mindspore/python/run_time_inference.h"

using ms_ext::pynative::Kernel;

PYBIND11_MODULE(_pynative, module) {
  define_graph_call(module);
  define_module(module);
  define_in_pool(module);
  define_own_graph(module);
  define_places(module);
  define_run_time_inference(module);
  module.def("leave_queues", &ms_ext::leave_queues);
  module.def("cast", &ms_ext::pynative::cast);
  module.def("has_mixed_precision", &ms_ext::pynative::has_mixed_precision);
  py::class_<Kernel>(module, "Kernel")
      .def(py::init<const std::string &, const std::string &, bool, bool, const std::string &, const std::string &,
                    bool, py::function, py::object, bool, const std::string &, std::vector<size_t>, bool>())
      .def("__call__", &Kernel::operator())
      .def("again", &Kernel::again);
}

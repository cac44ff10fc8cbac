#include "programs/python/host_calls.h"

#include <torch/csrc/Exceptions.h>

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>

#include "programs/python/repeated_launch.h"

namespace {

namespace py = pybind11;

using Repeated = std::unordered_map<int64_t, std::shared_ptr<const ms_ext::RepeatedLaunch>>;

// Never freed, since a graph may run while the process ends.
Repeated &repeated() {
  static auto *const repeated = new Repeated;
  return *repeated;
}

py::object &host_function() {
  static auto *const function = new py::object;
  return *function;
}

void call(int64_t number, void *const *addresses, size_t count) {
  const auto known = repeated().find(number);
  if (known != repeated().end()) {
    const auto launch = known->second;  // another may come meanwhile, on another thread
    if (launch->run(addresses, count)) return;
  }
  py::tuple given(count);
  for (size_t i = 0; i < count; ++i) given[i] = reinterpret_cast<uintptr_t>(addresses[i]);
  host_function()(number, given);
}

// As error_of in errors.h reads it. Some errors have no words.
std::string text_of(const py::error_already_set &error) {
  const py::object type = error.type();
  const std::string words = py::str(error.value()), name = py::str(type.attr("__qualname__"));
  return std::string(py::str(type.attr("__module__"))) + ":" + name + "\x1f" + (words.empty() ? name : words);
}

}  // namespace

extern "C" {

char *ms_ext_call_host(int64_t number, void *const *addresses, size_t count) {
  const py::gil_scoped_acquire gil;
  try {
    try {
      call(number, addresses, count);
      return nullptr;
    } catch (py::error_already_set &) {
      throw;
    } catch (...) {  // as PyTorch's Python raises it
      torch::translate_exception_to_python(std::current_exception());
      throw py::error_already_set();
    }
  } catch (const py::error_already_set &error) {
    return strdup(text_of(error).c_str());
  }
}

void ms_ext_set_host_function(PyObject *function) { host_function() = py::reinterpret_borrow<py::object>(function); }

bool ms_ext_repeat_host_call(int64_t number, PyObject *again) {
  try {
    if (again == Py_None) {
      repeated().erase(number);
    } else {
      repeated()[number] = std::make_shared<const ms_ext::RepeatedLaunch>(py::reinterpret_borrow<py::dict>(again));
    }
    return true;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return false;
  }
}

}  // extern "C"

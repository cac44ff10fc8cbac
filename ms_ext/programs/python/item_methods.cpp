// How a class and those that derive from it take items while a function is captured (bridge/programs/selected.py).
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <exception>
#include <utility>
#include <vector>

namespace {

namespace py = pybind11;

void note(const py::handle &type, std::vector<std::pair<PySequenceMethods *, PySequenceMethods>> *found) {
  PySequenceMethods *const methods = reinterpret_cast<PyTypeObject *>(type.ptr())->tp_as_sequence;
  if (methods != nullptr) found->emplace_back(methods, *methods);
  for (const py::handle derived : type.attr("__subclasses__")()) note(derived, found);
}

}  // namespace

extern "C" {

// Has a class take or set items by this method, or as before without one. Python would have its objects be sequences
// then, which PyTorch looks into where they are in lists: they are no more sequences than they were.
PyObject *ms_ext_set_item_method(PyObject *type, const char *name, PyObject *method) {
  try {
    std::vector<std::pair<PySequenceMethods *, PySequenceMethods>> before;
    note(type, &before);
    if (PyObject_SetAttrString(type, name, method == Py_None ? nullptr : method) != 0) return nullptr;
    for (const auto &[methods, own] : before) {
      methods->sq_item = own.sq_item;
      methods->sq_ass_item = own.sq_ass_item;
    }
    Py_RETURN_NONE;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

}  // extern "C"

#include "programs/python/contents.h"

#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <exception>
#include <string>

namespace ms_ext {

namespace py = pybind11;

namespace {

bool is_container(const py::handle &object) {
  return PyDict_Check(object.ptr()) || PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
}

}  // namespace

Contents::Contents(const py::list &roots, const char *besides, bool is_deep) {
  std::unordered_set<PyObject *> seen;
  for (const py::handle root : roots) note(root, besides, is_deep, &seen);
}

void Contents::note(const py::handle &object, const char *besides, bool is_deep, std::unordered_set<PyObject *> *seen) {
  if (!is_container(object) || !seen->insert(object.ptr()).second) return;
  std::vector<py::object> items;
  if (PyDict_Check(object.ptr())) {
    for (const auto &[key, value] : py::reinterpret_borrow<py::dict>(object)) {
      const bool counts = !py::isinstance<py::str>(key) || py::cast<std::string>(key) != besides;
      items.push_back(py::reinterpret_borrow<py::object>(key));
      items.push_back(counts ? py::reinterpret_borrow<py::object>(value) : py::object());
    }
  } else {
    for (const py::handle item : object) items.push_back(py::reinterpret_borrow<py::object>(item));
  }
  containers_.push_back({py::reinterpret_borrow<py::object>(object), items});
  if (!is_deep) return;
  for (const py::object &item : items) {
    if (item) note(item, besides, is_deep, seen);
  }
}

bool Contents::is_same(const Container &container) {
  PyObject *const object = container.object.ptr();
  const auto &items = container.items;
  if (!PyDict_Check(object)) {
    return static_cast<size_t>(PySequence_Fast_GET_SIZE(object)) == items.size() &&
           std::equal(items.begin(), items.end(), PySequence_Fast_ITEMS(object),
                      [](const py::object &item, PyObject *now) { return item.ptr() == now; });
  }
  if (static_cast<size_t>(PyDict_Size(object)) != items.size() / 2) return false;
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  for (size_t i = 0; PyDict_Next(object, &position, &key, &value) != 0; i += 2) {
    if (items[i].ptr() != key || (items[i + 1] && items[i + 1].ptr() != value)) return false;
  }
  return true;
}

bool Contents::are_same() const { return std::all_of(containers_.begin(), containers_.end(), is_same); }

}  // namespace ms_ext

using ms_ext::Contents;

extern "C" {

// What a module has, without its mode (bridge/programs/configurations.py). Args: a list of dictionaries and lists.
void *ms_ext_contents(PyObject *containers) {
  try {
    return new Contents(pybind11::reinterpret_borrow<pybind11::list>(containers), "training", /*is_deep=*/false);
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

void ms_ext_free_contents(void *contents) { delete static_cast<Contents *>(contents); }

bool ms_ext_contents_are_same(const void *contents) { return static_cast<const Contents *>(contents)->are_same(); }

}  // extern "C"

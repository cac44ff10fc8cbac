#include "programs/python/contents.h"

#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <exception>
#include <string>

namespace ms_ext {

namespace py = pybind11;

namespace {

// Python gives a dictionary another one with each change.
uint64_t version_of(PyObject *object) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // in 3.12, which is the last one that has it
  return PyDict_Check(object) ? reinterpret_cast<PyDictObject *>(object)->ma_version_tag : 0;
#pragma GCC diagnostic pop
}

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
      const bool counts = besides == nullptr || !py::isinstance<py::str>(key) || py::cast<std::string>(key) != besides;
      items.push_back(py::reinterpret_borrow<py::object>(key));
      items.push_back(counts ? py::reinterpret_borrow<py::object>(value) : py::object());
    }
  } else {
    for (const py::handle item : object) items.push_back(py::reinterpret_borrow<py::object>(item));
  }
  containers_.push_back({py::reinterpret_borrow<py::object>(object), items, version_of(object.ptr())});
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
  const uint64_t version = version_of(object);
  if (version == container.version) return true;
  if (!holds_same(object, items)) return false;
  container.version = version;
  return true;
}

bool Contents::holds_same(PyObject *dictionary, const std::vector<py::object> &items) {
  if (static_cast<size_t>(PyDict_Size(dictionary)) != items.size() / 2) return false;
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  for (size_t i = 0; PyDict_Next(dictionary, &position, &key, &value) != 0; i += 2) {
    if (items[i].ptr() != key || (items[i + 1] && items[i + 1].ptr() != value)) return false;
  }
  return true;
}

bool Contents::are_same() const { return std::all_of(containers_.begin(), containers_.end(), is_same); }

}  // namespace ms_ext

using ms_ext::Contents;

extern "C" {

// What a module has (bridge/programs/configurations.py). Args: see Contents.
void *ms_ext_contents(PyObject *containers, const char *besides) {
  try {
    return new Contents(pybind11::reinterpret_borrow<pybind11::list>(containers), besides, /*is_deep=*/false);
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

void ms_ext_free_contents(void *contents) { delete static_cast<Contents *>(contents); }

bool ms_ext_contents_are_same(const void *contents) { return static_cast<const Contents *>(contents)->are_same(); }

// What no dictionary has had before its last change (bridge/programs/loaded_modules.py).
uint64_t ms_ext_version_of(PyObject *dictionary) { return ms_ext::version_of(dictionary); }

}  // extern "C"

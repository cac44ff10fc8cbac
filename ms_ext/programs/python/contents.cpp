#include "programs/python/contents.h"

#include <algorithm>
#include <string>

namespace ms_ext {

namespace py = pybind11;

namespace {

bool is_container(const py::handle &object) {
  return PyDict_Check(object.ptr()) || PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
}

}  // namespace

Contents::Contents(const py::list &roots, const char *besides) {
  std::unordered_set<PyObject *> seen;
  for (const py::handle root : roots) note(root, besides, &seen);
}

void Contents::note(const py::handle &object, const char *besides, std::unordered_set<PyObject *> *seen) {
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
  for (const py::object &item : items) {
    if (item) note(item, besides, seen);
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

// What containers of Python's hold.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <unordered_set>
#include <vector>

namespace ms_ext {

// Used with the GIL.
class __attribute__((visibility("hidden"))) Contents {
 public:
  // Args: dictionaries, lists and tuples; a key of dictionaries whose value does not count, or null; whether the
  // containers in them count too.
  Contents(const pybind11::list &roots, const char *besides, bool is_deep);

  // Whether they hold the same objects as when this was made, in the same order.
  bool are_same() const;

 private:
  struct Container {
    pybind11::object object;
    std::vector<pybind11::object> items;  // keys and values of a dictionary in turns; null where that does not count
    mutable uint64_t version;             // of a dictionary that held these
  };

  static bool is_same(const Container &container);
  static bool holds_same(PyObject *dictionary, const std::vector<pybind11::object> &items);
  void note(const pybind11::handle &object, const char *besides, bool is_deep, std::unordered_set<PyObject *> *seen);

  std::vector<Container> containers_;
};

}  // namespace ms_ext

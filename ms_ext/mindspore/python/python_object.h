// A Python object that MindSpore may drop on a thread of its own, or after Python has ended.
#pragma once

#include <utility>

#include "pybind11/pybind11.h"

namespace ms_ext::pynative {

class PythonObject {
 public:
  explicit PythonObject(pybind11::object object) : object_(std::move(object)) {}
  PythonObject(const PythonObject &) = delete;
  PythonObject &operator=(const PythonObject &) = delete;
  ~PythonObject() {
    if (!Py_IsInitialized() || _Py_IsFinalizing()) {
      object_.release();  // nobody gets the GIL any more
      return;
    }
    const pybind11::gil_scoped_acquire gil;
    object_ = pybind11::object();
  }

  const pybind11::object &operator*() const { return object_; }

 private:
  pybind11::object object_;
};

}  // namespace ms_ext::pynative

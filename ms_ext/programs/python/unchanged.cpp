// Whether all that the name of a graph follows from is as it was (bridge/programs/modes.py), in one call from Python:
// where small kernels run, Python's own look at each of it takes as long as they do.
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "programs/python/contents.h"

extern "C" uint64_t ms_ext_choices(bool on_gpu);

namespace ms_ext {
namespace {

namespace py = pybind11;

bool has_modes() {
  return at::impl::PythonTorchFunctionTLS::stack_len() > 0 || c10::impl::TorchDispatchModeTLS::stack_len() > 0;
}

// Used with the GIL.
class __attribute__((visibility("hidden"))) Unchanged {
 public:
  // Args: see Watched in bridge/programs/unchanged.py.
  Unchanged(const py::list &containers, const py::list &objects, const py::list &attributes, const py::list &questions,
            bool on_gpu)
      : contents_(containers, /*besides=*/nullptr, /*is_deep=*/false),
        on_gpu_(on_gpu),
        choices_(ms_ext_choices(on_gpu)) {
    for (const py::handle object : objects) {
      classes_.emplace_back(py::reinterpret_borrow<py::object>(object), py::type::of(object));
    }
    for (const py::handle attribute : attributes) {
      const auto parts = py::reinterpret_borrow<py::tuple>(attribute);
      attributes_.push_back({parts[0], parts[1], parts[2]});
    }
    for (const py::handle question : questions) {
      const auto parts = py::reinterpret_borrow<py::tuple>(question);
      questions_.push_back({parts[0], parts[1], parts[2]});
    }
  }

  bool holds() const {
    return !has_modes() && ms_ext_choices(on_gpu_) == choices_ && contents_.are_same() &&
           std::all_of(classes_.begin(), classes_.end(),
                       [](const auto &one) { return py::type::of(one.first).is(one.second); }) &&
           std::all_of(attributes_.begin(), attributes_.end(), is_there) &&
           std::all_of(questions_.begin(), questions_.end(), has_answer);
  }

 private:
  struct Attribute {
    py::object reference, name, value;  // a weak reference to the object
  };

  struct Question {
    py::object function;
    py::tuple arguments;
    py::object answer;
  };

  static bool is_there(const Attribute &attribute) {
    const py::object owner = attribute.reference();
    return !owner.is_none() && py::getattr(owner, attribute.name).is(attribute.value);
  }

  // The same object, or the same integer.
  static bool has_answer(const Question &question) {
    const py::object found = question.function(*question.arguments);
    const bool are_integers = PyLong_CheckExact(found.ptr()) && PyLong_CheckExact(question.answer.ptr());
    return found.is(question.answer) || (are_integers && found.equal(question.answer));
  }

  Contents contents_;
  bool on_gpu_;
  uint64_t choices_;
  std::vector<std::pair<py::object, py::type>> classes_;
  std::vector<Attribute> attributes_;
  std::vector<Question> questions_;
};

}  // namespace
}  // namespace ms_ext

using ms_ext::Unchanged;

extern "C" {

void *ms_ext_unchanged(PyObject *containers, PyObject *objects, PyObject *attributes, PyObject *questions,
                       bool on_gpu) {
  namespace py = pybind11;
  const auto list = [](PyObject *given) { return py::reinterpret_borrow<py::list>(given); };
  try {
    return new Unchanged(list(containers), list(objects), list(attributes), list(questions), on_gpu);
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

void ms_ext_free_unchanged(void *unchanged) { delete static_cast<Unchanged *>(unchanged); }

bool ms_ext_is_unchanged(const void *unchanged) {
  try {
    return static_cast<const Unchanged *>(unchanged)->holds();
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return false;
  }
}

}  // extern "C"

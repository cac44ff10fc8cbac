// Gradients that a program's Python asks for.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "programs/torch_memory.h"

namespace {

using Tensors = std::vector<at::Tensor>;

Tensors unpacked(PyObject *list) {
  Tensors tensors;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    tensors.push_back(THPVariable_Unpack(PyList_GET_ITEM(list, i)));
  }
  return tensors;
}

Tensors ones_like(const Tensors &results) {
  Tensors ones;
  for (const at::Tensor &result : results) {
    ones.push_back(result.requires_grad() ? at::ones_like(result) : at::Tensor());
  }
  return ones;
}

// Undefined for those of the tensors that require none.
Tensors differentiate(const Tensors &results, const Tensors &tensors, Tensors given, bool create_graph) {
  const pybind11::gil_scoped_release released;  // PyTorch's engine wants it
  const auto wanted = std::make_unique<bool[]>(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) wanted[i] = tensors[i].requires_grad();
  Tensors found = ms_ext::differentiate(tensors, wanted.get(), results, std::move(given), create_graph);
  for (at::Tensor &gradient : found) {
    if (gradient.defined() && gradient.is_sparse()) gradient = gradient.to_dense();
  }
  return found;
}

}  // namespace

extern "C" {

// bridge/programs/added_gradients.py has the arguments: lists of PyTorch's tensors; `given` may be None. Returns a
// list, or null with Python's error set.
PyObject *ms_ext_gradients_of(PyObject *results, PyObject *tensors, PyObject *given, bool create_graph) {
  try {
    const Tensors differentiated = unpacked(results);
    Tensors found = differentiate(differentiated, unpacked(tensors),
                                  given == Py_None ? ones_like(differentiated) : unpacked(given), create_graph);
    pybind11::list list(found.size());
    for (size_t i = 0; i < found.size(); ++i) {  // None where it is undefined
      list[i] = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(std::move(found[i])));
    }
    return list.release().ptr();
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

}  // extern "C"

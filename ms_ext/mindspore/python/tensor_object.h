// The tensors that Python has.
#pragma once

#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "include/utils/tensor_py.h"

namespace ms_ext::pynative {

// The class that every Parameter has.
inline const PyTypeObject *parameter_class() {
  const py::module_ mindspore = py::module_::import("mindspore");
  const py::object found = mindspore.attr("Parameter").attr("_get_base_class")(mindspore.attr("Tensor"));
  return reinterpret_cast<const PyTypeObject *>(found.ptr());  // which mindspore keeps
}

// MindSpore's caster asks each class that derives from Tensor for a method that Parameter does not have. Python makes
// an error of that, which takes longer than all the rest of a cast.
inline ms::Tensor tensor_from(const py::handle &object) {
  static const PyTypeObject *const parameter = parameter_class();
  return Py_TYPE(object.ptr()) == parameter ? ms::Tensor(mindspore::tensor::ConvertToValue(object))
                                            : object.cast<ms::Tensor>();
}

inline mindspore::tensor::TensorPtr tensor_of(const py::handle &object) {
  const ms::Tensor tensor = tensor_from(object);
  tensor.ConvertStubNodeToTensor();
  return tensor.tensor();
}

}  // namespace ms_ext::pynative

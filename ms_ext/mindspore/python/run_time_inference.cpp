// A graph with an object of Python's in it, as a dictionary that it returns, is compiled up to its operators, and these
// get their kernels when it runs: MindSpore then infers the results again. It has no Python primitives there, which its
// inference of `ops.Custom` asks for dtypes.
#include "mindspore/python/run_time_inference.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "abstract/abstract_value.h"
#include "abstract/ops/op_infer.h"
#include "abstract/ops/primitive_infer_map.h"
#include "include/utils/convert_utils_py.h"
#include "ir/primitive.h"
#include "pybind11/stl.h"

namespace {

namespace abstract = mindspore::abstract;
using Inputs = std::vector<abstract::AbstractBasePtr>;

std::string attribute(const mindspore::PrimitivePtr &primitive, const char *name) {
  return mindspore::GetValue<std::string>(primitive->GetAttr(name));
}

// A tensor's shape and dtype; a number of MindSpore's is one without dimensions.
py::tuple described(const abstract::AbstractBasePtr &input) {
  const auto tensor = input->cast<abstract::AbstractTensorPtr>();
  const mindspore::ShapeVector shape = tensor == nullptr ? mindspore::ShapeVector() : tensor->shape()->shape();
  const abstract::AbstractBasePtr element = tensor == nullptr ? input : tensor->element();
  return py::make_tuple(py::tuple(py::cast(shape)), mindspore::ValueToPyData(element->BuildType()));
}

// What bridge/primitive/graph_shapes.py infers.
abstract::AbstractBasePtr infer(const mindspore::PrimitivePtr &primitive, const Inputs &inputs) {
  const py::gil_scoped_acquire gil;
  try {
    py::list given;
    for (const auto &input : inputs) given.append(described(input));
    const py::object results = py::module::import("bridge.primitive.graph_shapes")
                                   .attr("results")(attribute(primitive, "aten_op"), attribute(primitive, "aten_args"),
                                                    attribute(primitive, "aten_device"), given);
    Inputs tensors;
    for (const auto &result : results) {
      const auto [shape, dtype] = result.cast<std::pair<mindspore::ShapeVector, mindspore::TypePtr>>();
      tensors.push_back(std::make_shared<abstract::AbstractTensor>(dtype, shape));
    }
    if (!mindspore::GetValue<bool>(primitive->GetAttr("multi_output"))) return tensors.at(0);
    return std::make_shared<abstract::AbstractTuple>(tensors);
  } catch (const py::error_already_set &error) {
    throw std::runtime_error(error.what());
  }
}

// MindSpore's inference of `ops.Custom`, and the one above where that asks for a Python primitive that is none.
class CustomInference final : public abstract::OpInferBase {
 public:
  explicit CustomInference(abstract::OpInferBasePtr own) : own_(std::move(own)) {}

  abstract::BaseShapePtr InferShape(const mindspore::PrimitivePtr &primitive, const Inputs &inputs) const override {
    return own_->InferShape(primitive, inputs);
  }

  mindspore::TypePtr InferType(const mindspore::PrimitivePtr &primitive, const Inputs &inputs) const override {
    return own_->InferType(primitive, inputs);
  }

  abstract::AbstractBasePtr InferShapeAndType(const abstract::AnalysisEnginePtr &engine,
                                              const mindspore::PrimitivePtr &primitive,
                                              const Inputs &inputs) const override {
    const bool asks_python = primitive->HasAttr("aten_dtypes") && !primitive->HasAttr("cpp_infer_type");
    if (asks_python && primitive->type_name() != "PrimitivePy") return infer(primitive, inputs);
    return own_->InferShapeAndType(engine, primitive, inputs);
  }

 private:
  abstract::OpInferBasePtr own_;
};

void infer_at_run_time() {
  auto &implementations = *abstract::GetPrimitiveInferMapPtr();
  const auto found = implementations.find(std::make_shared<mindspore::Primitive>("Custom"));
  if (found == implementations.end()) return;
  const auto inference = std::make_shared<CustomInference>(found->second.Get());
  found->second = abstract::StandardPrimitiveImplReg(inference, false);
}

}  // namespace

void define_run_time_inference(py::module_ &module) { module.def("infer_at_run_time", &infer_at_run_time); }

// Shapes and dtypes of results, from those of the inputs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "mindspore/python/dtype.h"
#include "mindspore/python/python_object.h"

namespace ms_ext::pynative {

using mindspore::TypeId;

struct Spec {
  TypeId dtype;
  ShapeVector shape;
};
using Specs = std::shared_ptr<const std::vector<Spec>>;

inline std::vector<Spec> specs_of(const std::vector<ms::Tensor> &tensors) {
  std::vector<Spec> specs;
  for (const ms::Tensor &tensor : tensors) specs.push_back({tensor.data_type(), tensor.shape()});
  return specs;
}

// Whether the tensors have these shapes and dtypes.
inline bool are(const std::vector<ms::Tensor> &tensors, const std::vector<Spec> &specs) {
  return std::equal(tensors.begin(), tensors.end(), specs.begin(), specs.end(),
                    [](const ms::Tensor &tensor, const Spec &spec) {
                      return tensor.data_type() == spec.dtype && tensor.shape() == spec.shape;
                    });
}

class Inference {
 public:
  // Args: infer([(shape, dtype), ...]), which gives the like for the results or raises.
  explicit Inference(py::function infer) : infer_(std::move(infer)) {}

  // Null for inputs or results that only a primitive can take, or refuse. Asks Python once for inputs of a kind.
  Specs operator()(const std::vector<ms::Tensor> &inputs) {
    std::vector<int64_t> key;
    for (const ms::Tensor &input : inputs) {
      const ShapeVector &shape = input.shape();
      key.push_back(input.data_type());
      key.push_back(static_cast<int64_t>(shape.size()));
      key.insert(key.end(), shape.begin(), shape.end());
    }
    const auto known = specs_.find(key);
    if (known != specs_.end()) return known->second;
    if (!std::all_of(inputs.begin(), inputs.end(), can_take)) return nullptr;
    if (specs_.size() >= kMaxKnown) specs_.clear();
    return specs_.emplace(std::move(key), ask(inputs)).first->second;
  }

 private:
  static constexpr size_t kMaxKnown = 4096;

  // Not dtypes that PyTorch lacks, nor a tensor without data, of unknown shape.
  static bool can_take(const ms::Tensor &input) {
    const ShapeVector &shape = input.shape();
    return find(input.data_type()) != nullptr &&
           std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; });
  }

  Specs ask(const std::vector<ms::Tensor> &inputs) const {
    py::list known;
    for (const ms::Tensor &input : inputs) {
      known.append(py::make_tuple(py::tuple(py::cast(input.shape())), find(input.data_type())->name));
    }
    std::vector<Spec> specs;
    for (const py::handle result : infer_(known)) {
      const auto pair = py::reinterpret_borrow<py::tuple>(result);
      specs.push_back({id_of(pair[1].cast<std::string>()), pair[0].cast<ShapeVector>()});
      if (specs.back().dtype == TypeId::kTypeUnknown) return nullptr;  // a dtype that is not in the table
    }
    return std::make_shared<const std::vector<Spec>>(std::move(specs));
  }

  py::function infer_;
  std::map<std::vector<int64_t>, Specs> specs_;
};

}  // namespace ms_ext::pynative

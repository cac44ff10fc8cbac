// Gradients of any order by PyTorch's autograd: run the overload again with autograd on, then differentiate.
//
// A kernel of level n is the gradient of the kernel of level n - 1, where level 0 is the overload itself: the kernel of
// an operator that others registered with PyTorch. Its inputs are those of level n - 1 followed by a cotangent for each
// output of level n - 1; its outputs are the gradients of the differentiable (floating or complex) inputs of level
// n - 1 that are asked for.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "gradient/differentiable.h"
#include "gradient/overload.h"
#include "gradient/random_state.h"
#include "shim.h"

namespace ms_ext {
namespace {

using Tensors = std::vector<at::Tensor>;

class gradient_shim {
 public:
  static constexpr bool kUsesAutograd = true;

  // The text is the overload's name, for each level which inputs of the level below are asked for (a 0 or 1 for each,
  // or nothing if all are), the numbers of the overload's outputs and of this kernel's inputs, and then the overload's
  // own text.
  explicit gradient_shim(Arguments &args) {
    std::string op;
    int64_t inputs = 0;
    args >> op >> asked_ >> outputs_ >> inputs;
    redraws_ = args.take_random_mark();
    overload_.emplace(op, args);
    op_inputs_ = args.inputs() + (redraws_ ? 1 : 0);
    args.expect_more_inputs(static_cast<int>(inputs) - args.inputs());
  }

  void operator()(Call &c) const {
    const at::AutoGradMode with_gradients(!asked_.empty());
    Tensors inputs;
    const auto received = c.inputs();
    for (size_t i = 0; i < received.size(); ++i) {
      inputs.push_back(received[i].detach());
      inputs.back().set_requires_grad(!asked_.empty() && is_differentiable(received[i]) && !overload_->is_state(i));
    }
    c.store([&] {
      try {
        return evaluate(asked_.size(), inputs, c.device(), /*differentiated_again=*/false);
      } catch (const c10::Error &error) {
        if (!names_no_formula(error) || !forget_refused(&inputs, c.device())) throw;
      }
      return evaluate(asked_.size(), inputs, c.device(), /*differentiated_again=*/false);
    });
  }

 private:
  // Whether PyTorch has no formula for the gradient of an input, as of the class weights of a loss.
  static bool names_no_formula(const c10::Error &error) {
    return std::string(error.what_without_backtrace()).find("is not differentiable with respect to") !=
           std::string::npos;
  }

  // Finds no gradients of such inputs, unless they are asked for by name: a graph asks for all. Whether there are any.
  bool forget_refused(Tensors *inputs, c10::Device device) const {
    Tensors alone;
    for (const at::Tensor &input : *inputs) alone.push_back(input.detach());
    bool any = false;
    for (size_t i = 0; i < static_cast<size_t>(op_inputs_); ++i) {
      if (!(*inputs)[i].requires_grad() || !asked_[0].empty()) continue;
      try {
        alone[i].set_requires_grad(true);
        call(at::ArrayRef<at::Tensor>(alone).slice(0, op_inputs_), device);
      } catch (const c10::Error &error) {
        if (!names_no_formula(error)) throw;
        (*inputs)[i].set_requires_grad(false);
        any = true;
      }
      alone[i].set_requires_grad(false);
    }
    return any;
  }

  // The number of inputs of the kernel one level below `level`.
  size_t inner_inputs(size_t level, at::ArrayRef<at::Tensor> inputs) const {
    if (level == 1) return static_cast<size_t>(op_inputs_);
    const size_t inner = inner_inputs(level - 1, inputs);
    if (level == 2) return inner + static_cast<size_t>(outputs_);
    return inner + wanted(level - 2, inputs.slice(0, inner_inputs(level - 2, inputs))).size();
  }

  // The inputs of the kernel one level below `level` that the kernel of `level` gives the gradients of.
  Tensors wanted(size_t level, at::ArrayRef<at::Tensor> inner) const {
    const std::string &asked = asked_[level - 1];
    Tensors tensors;
    for (size_t i = 0; i < inner.size(); ++i) {
      if (is_differentiable(inner[i]) && (asked.empty() || asked[i] == '1')) tensors.push_back(inner[i]);
    }
    return tensors;
  }

  Tensors evaluate(size_t level, at::ArrayRef<at::Tensor> inputs, c10::Device device, bool differentiated_again) const {
    if (level == 0) return call(inputs, device);
    const size_t count = inner_inputs(level, inputs);
    const auto inner = inputs.slice(0, count);
    const auto cotangents = inputs.slice(count);
    const Tensors results = evaluate(level - 1, inner, device, true);
    Tensors outputs, output_cotangents;
    TORCH_CHECK(results.size() == cotangents.size(), "it has ", results.size(), " outputs, but ", cotangents.size(),
                " cotangents were given");
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].requires_grad()) continue;
      outputs.push_back(results[i]);
      output_cotangents.push_back(cotangents[i]);
    }
    const Tensors tensors = wanted(level, inner);
    Tensors asked;
    std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(asked),
                 [](const at::Tensor &tensor) { return tensor.requires_grad(); });
    Tensors found;
    if (!outputs.empty() && !asked.empty()) {
      found = torch::autograd::grad(outputs, asked, output_cotangents, /*retain_graph=*/differentiated_again,
                                    /*create_graph=*/differentiated_again, /*allow_unused=*/true);
    }
    return complete(tensors, found);
  }

  // With zeros for tensors that no gradient was found for. `found` has none for those that require none.
  static Tensors complete(const Tensors &tensors, const Tensors &found) {
    Tensors gradients;
    size_t next = 0;
    for (const auto &tensor : tensors) {
      at::Tensor gradient;
      if (tensor.requires_grad() && !found.empty()) gradient = found[next++];
      if (!gradient.defined()) {
        gradient = at::zeros_like(tensor, tensor.options().requires_grad(false));
      } else if (gradient.is_sparse()) {
        gradient = gradient.to_dense();
      }
      gradients.push_back(std::move(gradient));
    }
    return gradients;
  }

  Tensors call(at::ArrayRef<at::Tensor> inputs, c10::Device device) const {
    std::optional<Redraw> redraw;
    if (redraws_) redraw.emplace(inputs[static_cast<size_t>(op_inputs_ - 1)]);
    return (*overload_)(inputs, device);
  }

  std::optional<Overload> overload_;
  std::vector<std::string> asked_;
  int64_t outputs_ = 0;
  int op_inputs_ = 0;
  bool redraws_ = false;
};

}  // namespace
}  // namespace ms_ext

using ms_ext::gradient_shim;
#ifdef MS_EXT_CUDA
MS_EXT_CUDA_SHIM_TUPLE(gradient)
#else
MS_EXT_CPU_SHIM_TUPLE(gradient)
#endif

#include "backward.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include "gradient/differentiable.h"
#include "gradient/layouts.h"

namespace ms_ext {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

Arguments &operator>>(Arguments &args, Saved &saved) {
  std::string name;
  args >> saved.results >> saved.passed >> saved.differentiable >> saved.asked;
  saved.call = args.rest();
  args >> name;
  args.expect_more_inputs(static_cast<int>(saved.results) * (saved.passed ? 2 : 1));
  return args;
}

at::Tensor Saved::result(const Call &c, size_t i) const {
  const auto inputs = c.inputs();
  const size_t first = inputs.size() - 2 * static_cast<size_t>(results);
  const std::vector<Strides> strides = find_layout(call, inputs.slice(0, first));
  return strides.empty() ? inputs[first + i] : with_strides(inputs[first + i], strides.at(i));
}

std::vector<at::Tensor> Saved::all_results(const Call &c) const {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < static_cast<size_t>(results); ++i) tensors.push_back(result(c, i));
  return tensors;
}

variable_list Saved::gradients(const Call &c) const {
  const auto inputs = c.inputs();
  const auto given = inputs.slice(inputs.size() - static_cast<size_t>(results));
  variable_list gradients;
  for (size_t i = 0; i < given.size(); ++i) {
    // Autograd numbers only the results that it tracks.
    if (i < differentiable.size() && differentiable[i] == '0') continue;
    gradients.push_back(is_differentiable(given[i]) ? given[i] : at::Tensor());
  }
  return gradients;
}

namespace {

// PyTorch shows a node's formula only to derived classes; a call of the node itself would record it for profilers.
struct Formula : torch::autograd::Node {
  using torch::autograd::Node::apply;
};

struct Sink final : torch::autograd::Node {
  variable_list apply(variable_list &&) override { return {}; }
};

}  // namespace

const torch::autograd::Edge &sink() {
  static const torch::autograd::Edge edge(own(new Sink()), 0);
  return edge;
}

BackwardBase::BackwardBase(Call &c, const Saved &saved, torch::autograd::Node *node)
    : c_(c), saved_(saved), owned_(own(node)) {}

BackwardBase::~BackwardBase() = default;

void BackwardBase::apply() {
  const at::NoGradGuard no_grad;
  owned_->set_next_edges(std::move(edges_));
  c_.store([&] { return finish((*owned_.*&Formula::apply)(saved_.gradients(c_))); });
}

void BackwardBase::save(SavedVariable &field, const at::Tensor &tensor) { field = SavedVariable(tensor, false); }

void BackwardBase::save(SavedVariable &field, const std::optional<at::Tensor> &tensor) {
  if (tensor) save(field, *tensor);
}

void BackwardBase::save(std::vector<SavedVariable> &field, const std::vector<at::Tensor> &tensors) {
  for (const auto &tensor : tensors) field.emplace_back(tensor, false);
}

void BackwardBase::save(std::vector<SavedVariable> &field, const c10::List<std::optional<at::Tensor>> &tensors) {
  for (const std::optional<at::Tensor> tensor : tensors) {
    if (tensor) {
      field.emplace_back(*tensor, false);
    } else {
      field.emplace_back();
    }
  }
}

void BackwardBase::save(std::vector<c10::SymInt> &field, const std::vector<int64_t> &values) {
  field.assign(values.begin(), values.end());
}

void BackwardBase::save(c10::OptionalArray<c10::SymInt> &field, const OptionalList<int64_t> &values) {
  if (values.values) field.list = std::vector<c10::SymInt>(values.values->begin(), values.values->end());
}

void BackwardBase::save(c10::OptionalArray<c10::SymInt> &field, const std::optional<c10::SymIntArrayRef> &values) {
  if (values) field.list = values->vec();
}

bool BackwardBase::gives_gradient(size_t input) const {
  return is_differentiable(c_.inputs()[input]) && (saved_.asked.empty() || saved_.asked[input] == '1');
}

void BackwardBase::wants(const at::Tensor &input) {
  // A number in a tensor's place is no input, and has no gradient.
  bool wanted = false;
  for (size_t i = 0; i < c_.inputs().size() && !wanted; ++i)
    wanted = c_.inputs()[i].is_same(input) && gives_gradient(i);
  if (wanted) input.set_requires_grad(true);  // some formulas ask the saved input itself
  edges_.push_back(wanted ? sink() : torch::autograd::Edge());
  wanted_.push_back(wanted ? input : at::Tensor());
}

void BackwardBase::wants(const std::optional<at::Tensor> &input) {
  if (input) {
    wants(*input);
  } else {
    edges_.emplace_back();
    wanted_.emplace_back();
  }
}

void BackwardBase::wants(const std::vector<at::Tensor> &inputs) {
  for (const auto &input : inputs) wants(input);
}

// As the engine does with what a node returns: summed over broadcast dimensions, in the input's dtype; undefined is
// zero.
std::vector<at::Tensor> BackwardBase::finish(const variable_list &gradients) const {
  std::vector<at::Tensor> finished;
  const size_t count = c_.outs().size();
  for (size_t place = 0; place < c_.inputs().size() && finished.size() < count; ++place) {
    if (!gives_gradient(place)) continue;
    const at::Tensor &input = c_.inputs()[place];
    at::Tensor gradient;
    for (size_t i = 0; i < wanted_.size() && i < gradients.size(); ++i) {
      if (wanted_[i].is_same(input)) gradient = gradients[i];
    }
    if (!gradient.defined()) {
      gradient = at::zeros_like(input);
    } else {
      if (gradient.is_sparse()) gradient = gradient.to_dense();
      if (gradient.sizes() != input.sizes()) gradient = at::sum_to(std::move(gradient), input.sizes());
      if (gradient.scalar_type() != input.scalar_type()) gradient = gradient.to(input.scalar_type());
    }
    finished.push_back(std::move(gradient));
  }
  return finished;
}

std::vector<std::vector<c10::SymInt>> to_args_sizes_symint(const std::vector<at::Tensor> &tensors) {
  std::vector<std::vector<c10::SymInt>> sizes;
  for (const auto &tensor : tensors) sizes.push_back(tensor.sym_sizes().vec());
  return sizes;
}

std::vector<std::vector<int64_t>> to_args_sizes(const std::vector<at::Tensor> &tensors) {
  std::vector<std::vector<int64_t>> sizes;
  for (const auto &tensor : tensors) sizes.push_back(tensor.sizes().vec());
  return sizes;
}

std::vector<at::ScalarType> to_args_scalartypes(const std::vector<at::Tensor> &tensors) {
  std::vector<at::ScalarType> types;
  for (const auto &tensor : tensors) types.push_back(tensor.scalar_type());
  return types;
}

}  // namespace ms_ext

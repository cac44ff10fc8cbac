#include "gradient/only_node.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

namespace ms_ext {
namespace {

using torch::autograd::Node;

// Which of the inputs the node stands for, as a leaf.
std::optional<size_t> find_leaf(const Node *node, const std::vector<at::Tensor> &inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad() && torch::autograd::impl::try_get_grad_accumulator(inputs[i]).get() == node) return i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<OnlyNode> only_node(const std::vector<at::Tensor> &inputs, const bool *wanted,
                                  const std::vector<at::Tensor> &results) {
  OnlyNode only{nullptr, {}, {}, inputs.size()};
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].requires_grad()) continue;
    Node *node = results[i].grad_fn().get();
    if (node == nullptr) return std::nullopt;  // the result is an input
    if (only.node == nullptr) {
      only.node = node;
      only.results.resize(node->num_inputs());
    }
    if (node != only.node) return std::nullopt;
    only.results[results[i].output_nr()] = i;
  }
  if (only.node == nullptr) return std::nullopt;
  std::vector<bool> found(inputs.size());
  for (const auto &edge : only.node->next_edges()) {
    only.inputs.emplace_back();
    if (!edge.is_valid()) continue;
    only.inputs.back() = find_leaf(edge.function.get(), inputs);
    if (!only.inputs.back()) return std::nullopt;  // a node of another call
    const size_t input = *only.inputs.back();
    if (!wanted[input] || found[input]) return std::nullopt;  // the engine leaves out, or adds up
    found[input] = true;
  }
  return only;
}

std::vector<at::Tensor> apply(const OnlyNode &only, std::vector<at::Tensor> gradients) {
  const at::NoGradGuard no_grad;
  torch::autograd::variable_list given(only.results.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (only.results[i]) given[i] = std::move(gradients[*only.results[i]]);
  }
  gradients.clear();
  auto found = (*only.node)(std::move(given));
  torch::autograd::validate_outputs(only.node->next_edges(), found, [&](const std::string &message) {
    return "Function " + only.node->name() + " returned an " + message;  // the engine's words
  });
  std::vector<at::Tensor> results(only.input_count);
  for (size_t i = 0; i < found.size() && i < only.inputs.size(); ++i) {
    if (only.inputs[i]) results[*only.inputs[i]] = std::move(found[i]);
  }
  return results;
}

}  // namespace ms_ext

// The gradient of a call that autograd recorded as one node: without the engine, which takes as long as five such
// nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace ms_ext {

struct OnlyNode {
  torch::autograd::Node *node;                 // the results keep it
  std::vector<std::optional<size_t>> inputs;   // for each gradient that it gives, of which input
  std::vector<std::optional<size_t>> results;  // for each gradient that it takes, of which result
  size_t input_count;
};

// The node, if there is one and it leads to leaves, all of which are wanted.
std::optional<OnlyNode> only_node(const std::vector<at::Tensor> &inputs, const bool *wanted,
                                  const std::vector<at::Tensor> &results);

// For each input its gradient, from those of the results; undefined where that is zero.
std::vector<at::Tensor> apply(const OnlyNode &only, std::vector<at::Tensor> gradients);

}  // namespace ms_ext

#include "gradient/few_nodes.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

#include "programs/torch_memory.h"

namespace ms_ext {

using Tensors = std::vector<at::Tensor>;

namespace {

using torch::autograd::Node;

constexpr size_t kFew = 8;

bool has_hooks(Node &node) {
  return !node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() ||
         !node.post_hooks().empty();
}

// A recorded graph of few nodes on the CPU, none of which has hooks, and whose leaves are wanted inputs.
class FewNodes {
 public:
  FewNodes(const Tensors &inputs, const bool *wanted, const Tensors &results)
      : inputs_(inputs), wanted_(wanted), results_(results) {}

  // Whether it is such a graph.
  bool find() {
    if (inputs_.size() > kFew || torch::autograd::AnomalyMode::is_enabled()) return false;
    for (const at::Tensor &result : results_) {
      if (!result.requires_grad()) continue;
      const bool is_input = result.grad_fn() == nullptr;
      if (is_input || !result.is_cpu() || !add(*result.grad_fn())) return false;
    }
    return !steps_.empty();
  }

  // For each input its gradient, as the engine finds it.
  Tensors differentiate(Tensors gradients) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!results_[i].requires_grad()) continue;
      accumulate(find_step(*results_[i].grad_fn())->given[results_[i].output_nr()], std::move(gradients[i]));
    }
    gradients.clear();  // a gradient that is one of these is not alone
    found_.resize(inputs_.size());
    for (size_t left = steps_.size(); left > 0; --left) run(next());
    return std::move(found_);
  }

 private:
  // A node, how many of the others that lead to it have not run, and the gradients that it takes.
  struct Step {
    Node *node;  // the results keep it
    size_t before = 0;
    bool done = false;
    Tensors given;
  };

  Step *find_step(const Node &node) {
    for (Step &step : steps_) {
      if (step.node == &node) return &step;
    }
    return nullptr;
  }

  // The position of the input that the node stands for, as a leaf; -1 if it is none.
  int64_t find_leaf(const Node &node) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].requires_grad()) continue;
      if (torch::autograd::impl::try_get_grad_accumulator(inputs_[i]).get() == &node) return static_cast<int64_t>(i);
    }
    return -1;
  }

  bool add(Node &node) {
    if (find_step(node) != nullptr) return true;
    if (steps_.size() == kFew || has_hooks(node) || node.next_edges().empty()) return false;
    steps_.push_back({&node, 0, false, Tensors(node.num_inputs())});
    for (const auto &edge : node.next_edges()) {
      if (!edge.is_valid()) continue;
      Node &next = *edge.function;
      const int64_t leaf = find_leaf(next);
      if (leaf >= 0) {
        if (!wanted_[leaf] || has_hooks(next)) return false;  // the engine leaves nodes out, and runs hooks
        continue;
      }
      if (!add(next)) return false;
      ++find_step(next)->before;
    }
    return true;
  }

  // Of those that may run, the one that was recorded last.
  Step &next() {
    Step *best = nullptr;
    for (Step &step : steps_) {
      if (step.done || step.before > 0) continue;
      if (best == nullptr || step.node->sequence_nr() > best->node->sequence_nr()) best = &step;
    }
    return *best;
  }

  void run(Step &step) {
    step.done = true;
    auto found = (*step.node)(std::move(step.given));
    step.node->release_variables();
    const auto &edges = step.node->next_edges();
    torch::autograd::validate_outputs(edges, found, [&](const std::string &message) {
      return "Function " + step.node->name() + " returned an " + message;
    });
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!edges[i].is_valid()) continue;
      at::Tensor gradient = i < found.size() ? std::move(found[i]) : at::Tensor();
      if (Step *after = find_step(*edges[i].function)) {
        --after->before;
        accumulate(after->given[edges[i].input_nr], std::move(gradient));
      } else {
        accumulate(found_[static_cast<size_t>(find_leaf(*edges[i].function))], std::move(gradient));
      }
    }
  }

  static void accumulate(at::Tensor &sum, at::Tensor gradient) {
    if (!gradient.defined()) return;
    sum = sum.defined() ? sum + gradient : std::move(gradient);
  }

  const Tensors &inputs_;
  const bool *wanted_;
  const Tensors &results_;
  std::vector<Step> steps_;
  Tensors found_;
};

}  // namespace

Tensors differentiate_recorded(const Tensors &inputs, const bool *wanted, const Tensors &results, Tensors gradients) {
  FewNodes few(inputs, wanted, results);
  return few.find() ? few.differentiate(std::move(gradients))
                    : differentiate(inputs, wanted, results, std::move(gradients));
}

}  // namespace ms_ext

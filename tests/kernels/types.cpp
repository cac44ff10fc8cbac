// Parameters and results of the types that extensions have, for tests/test_kernel_types.py.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

// As a list of numbers would be for pybind11.
at::Tensor weighted(at::Tensor &x, std::vector<int> sizes, const std::vector<float> &weights,
                    std::array<int64_t, 2> pair, std::tuple<int, int> window, std::pair<double, float> range) {
  double sum = pair[0] * 1000 + pair[1] * 100 + std::get<0>(window) * 10 + std::get<1>(window);
  for (const int size : sizes) sum += size;
  for (const float weight : weights) sum += weight;
  return x * (sum + range.first - range.second);
}

at::Tensor stacked(std::vector<at::Tensor> &tensors, const char *how, std::string_view why) {
  const at::Tensor all = at::stack(tensors);
  return std::string(how) == "sum" && why == "because" ? all.sum(0) : all.mean(0);
}

at::Tensor with_bias(at::Tensor x, at::Tensor bias) { return bias.defined() ? x + bias : x; }

std::pair<at::Tensor, at::Tensor> as_pair(const at::Tensor &x) { return {x + 1, x + 2}; }

std::array<at::Tensor, 3> as_array(const at::Tensor &x) { return {x + 1, x + 2, x + 3}; }

std::optional<at::Tensor> as_optional(const at::Tensor &x) { return x + 1; }

int64_t how_many(const at::Tensor &x) { return x.numel(); }

std::tuple<at::Tensor, double, bool> with_numbers(const at::Tensor &x) { return {x * 2, 0.1, true}; }

template <typename T>
at::Tensor times(const at::Tensor &x, T factor) {
  return x * factor;
}

at::Tensor plus(const at::Tensor &x) { return x + 1; }
at::Tensor plus(const at::Tensor &x, double y) { return x + y; }

// Writes to its second argument and returns the number of elements written.
int fill_first(const at::Tensor &x, at::Tensor &out, int64_t count) {
  out.zero_();
  out.narrow(0, 0, count).copy_(x.narrow(0, 0, count));
  return static_cast<int>(count);
}

at::Tensor push(at::Tensor &queue, const at::Tensor &x) {
  const at::Tensor first = queue[0].clone();
  queue.copy_(queue.roll(-1, 0));
  queue[-1].copy_(x);
  return first;
}

at::Tensor named(const at::Tensor &c, const at::Tensor &flat, double factor) { return c - flat * factor; }

struct Opaque {};
at::Tensor from_opaque(const at::Tensor &x, Opaque) { return x; }
Opaque to_opaque(const at::Tensor &) { return {}; }

// Gradients as torch::autograd::Function writes them: nothing for what has none.
at::Tensor gather_rows(const at::Tensor &x, const at::Tensor &index, const std::optional<at::Tensor> &weight) {
  const at::Tensor rows = x.index_select(0, index);
  return weight ? rows * weight->unsqueeze(1) : rows;
}

std::vector<at::Tensor> gather_rows_backward(const at::Tensor &grad, const at::Tensor &index, int64_t rows) {
  return {at::zeros_like(grad).resize_({rows, grad.size(1)}).zero_().index_add(0, index, grad), at::Tensor()};
}

at::Tensor product(const at::Tensor &a, const at::Tensor &b) { return a * b; }

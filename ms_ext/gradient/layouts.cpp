#include "gradient/layouts.h"

#include <ATen/ops/empty_strided.h>

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "arguments.h"

namespace ms_ext {
namespace {

using Shape = std::vector<int64_t>;

std::shared_mutex mutex;
std::map<std::string, std::map<std::vector<Shape>, std::vector<Strides>>> layouts;
std::atomic<bool> any = false;

}  // namespace

std::vector<Strides> find_layout(const std::string &call, at::ArrayRef<at::Tensor> inputs) {
  if (!any) return {};
  const std::shared_lock<std::shared_mutex> lock(mutex);
  const auto of_call = layouts.find(call);
  if (of_call == layouts.end()) return {};
  std::vector<Shape> shapes;
  for (const auto &input : inputs) shapes.push_back(input.sizes().vec());
  const auto found = of_call->second.find(shapes);
  return found == of_call->second.end() ? std::vector<Strides>() : found->second;
}

at::Tensor with_strides(const at::Tensor &tensor, const Strides &strides) {
  if (tensor.strides() == at::IntArrayRef(strides)) return tensor;
  return at::empty_strided(tensor.sizes(), strides, tensor.options()).copy_(tensor);
}

}  // namespace ms_ext

extern "C" {

// Shapes and strides are lists of lists in the encoding of arguments.h.
void ms_ext_add_layout(const char *call, const char *shapes, const char *strides) {
  std::vector<ms_ext::Shape> input_shapes;
  std::vector<ms_ext::Strides> result_strides;
  ms_ext::Arguments(shapes) >> input_shapes;
  ms_ext::Arguments(strides) >> result_strides;
  const std::unique_lock<std::shared_mutex> lock(ms_ext::mutex);
  ms_ext::layouts[call][std::move(input_shapes)] = std::move(result_strides);
  ms_ext::any = true;
}

}  // extern "C"

// Parts of a tensor where integers that depend on data say so, as `x[lengths[0]]` (bridge/programs/selected.py). Python
// takes such a tensor without dimensions for its integer, which it waits for: so do these.
#include <ATen/Functions.h>
#include <torch/library.h>

namespace ms_ext {
namespace {

// The last dimension first, so that those to come keep their numbers.
at::Tensor part(at::Tensor all, at::IntArrayRef dims, at::TensorList indices) {
  for (size_t i = dims.size(); i-- > 0;) {
    const auto index = indices[i].item<int64_t>();
    const int64_t size = all.size(dims[i]);
    TORCH_CHECK_INDEX(-size <= index && index < size, "index ", index, " is out of bounds for dimension ", dims[i],
                      " with size ", size);
    all = all.select(dims[i], index);
  }
  return all;
}

// Laid out as the part is, because PyTorch's kernels choose by that.
at::Tensor select_at(const at::Tensor &self, at::IntArrayRef dims, at::TensorList indices) {
  const at::Tensor found = part(self, dims, indices);
  return at::empty_strided(found.sizes(), found.strides(), found.options()).copy_(found);
}

at::Tensor select_at_backward(const at::Tensor &gradient, at::IntArrayRef size, at::IntArrayRef dims,
                              at::TensorList indices) {
  at::Tensor all = at::zeros(size, gradient.options());
  part(all, dims, indices).copy_(gradient);
  return all;
}

void put_at(at::Tensor &self, const at::Tensor &value, at::IntArrayRef dims, at::TensorList indices) {
  part(self, dims, indices).copy_(value);
}

at::Tensor without_at(const at::Tensor &self, at::IntArrayRef dims, at::TensorList indices) {
  at::Tensor others = self.clone();
  part(others, dims, indices).zero_();
  return others;
}

TORCH_LIBRARY_FRAGMENT(bridge, library) {
  const auto define = [&](const char *schema, auto function) {
    library.def(torch::schema(schema, /*allow_typeinfer=*/false),
                torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, function));
  };
  define("select_at(Tensor self, int[] dims, Tensor[] indices) -> Tensor", select_at);
  define("select_at_backward(Tensor gradient, int[] size, int[] dims, Tensor[] indices) -> Tensor", select_at_backward);
  define("put_at_(Tensor(a!) self, Tensor value, int[] dims, Tensor[] indices) -> ()", put_at);
  define("without_at(Tensor self, int[] dims, Tensor[] indices) -> Tensor", without_at);
}

}  // namespace
}  // namespace ms_ext

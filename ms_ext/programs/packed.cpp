// Packed sequences in a program (bridge/programs/packed.py). Data decides how many rows PyTorch packs, and in how many
// steps. Here a packed tensor has as many rows as all steps of all sequences: PyTorch's own, and then zeros. So have
// its batch sizes.
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "programs/torch_memory.h"

namespace ms_ext {
namespace {

using Tensors = std::vector<at::Tensor>;

// As PyTorch has them, on the host. What forward saves may be on a GPU.
at::Tensor own_sizes(const at::Tensor &batch_sizes) {
  const at::Tensor on_host = batch_sizes.cpu();
  const auto *const sizes = on_host.const_data_ptr<int64_t>();
  return on_host.narrow(0, 0, std::find(sizes, sizes + on_host.numel(), 0) - sizes);
}

at::Tensor own_rows(const at::Tensor &data, const at::Tensor &batch_sizes) {
  return data.narrow(0, 0, at::sum(batch_sizes.cpu()).item<int64_t>());
}

at::Tensor with_rows(const at::Tensor &own, int64_t rows) {
  if (own.size(0) == rows) return own;
  auto sizes = own.sizes().vec();
  sizes[0] = rows;
  at::Tensor all = at::zeros(sizes, own.options().requires_grad(false));
  all.narrow(0, 0, own.size(0)).copy_(own);
  return all;
}

at::Tensor batch_sizes_of(const at::Tensor &lengths, int64_t batch, int64_t steps) {
  return with_rows(std::get<1>(at::_pack_padded_sequence(at::zeros({steps, batch}), lengths, false)), steps);
}

at::Tensor pack(const at::Tensor &input, const at::Tensor &lengths, bool batch_first) {
  return with_rows(std::get<0>(at::_pack_padded_sequence(input, lengths, batch_first)), input.size(0) * input.size(1));
}

at::Tensor pack_backward(const at::Tensor &gradient, at::IntArrayRef size, const at::Tensor &batch_sizes,
                         bool batch_first) {
  return at::_pack_padded_sequence_backward(own_rows(gradient, batch_sizes), size, own_sizes(batch_sizes), batch_first);
}

at::Tensor longest(const at::Tensor &batch_sizes) {
  return at::scalar_tensor(own_sizes(batch_sizes).numel(), batch_sizes.options());
}

std::tuple<at::Tensor, at::Tensor> pad(const at::Tensor &data, const at::Tensor &batch_sizes, int64_t /*batch*/,
                                       bool batch_first, double value, int64_t length) {
  const int64_t longest = own_sizes(batch_sizes).numel();
  TORCH_CHECK_VALUE(length >= longest,
                    "Expected total_length to be at least the length of the longest sequence in input, but got "
                    "total_length=",
                    length, " and max sequence length being ", longest);
  return at::_pad_packed_sequence(own_rows(data, batch_sizes), own_sizes(batch_sizes), batch_first, value, length);
}

// A launch leaves autograd out. Inside, there is autograd, which records if gradients are enabled.
class Recording {
 public:
  explicit Recording(bool enables_gradients) : keys_(keys()), mode_(enables_gradients) {}

 private:
  static c10::impl::LocalDispatchKeySet keys() {
    auto keys = c10::impl::tls_local_dispatch_key_set();
    keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    return keys;
  }

  c10::impl::ForceDispatchKeyGuard keys_;
  at::AutoGradMode mode_;
};

// PyTorch's autocast, as it was where the layer was captured.
class Casting {
 public:
  Casting(std::optional<at::ScalarType> to, c10::DeviceType device) : is_needed_(to.has_value()) {
    if (!is_needed_) return;
    device_ = device;
    was_enabled_ = at::autocast::is_autocast_enabled(device);
    before_ = at::autocast::get_autocast_dtype(device);
    cached_ = at::autocast::is_autocast_cache_enabled();
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, *to);
    at::autocast::set_autocast_cache_enabled(true);  // Layer says what of
    at::autocast::increment_nesting();
  }
  ~Casting() {
    if (!is_needed_) return;
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();  // which would keep what is cast here as long as the user's region lasts
    at::autocast::set_autocast_cache_enabled(cached_);
    at::autocast::set_autocast_dtype(device_, before_);
    at::autocast::set_autocast_enabled(device_, was_enabled_);
  }
  Casting(const Casting &) = delete;
  Casting &operator=(const Casting &) = delete;

 private:
  bool is_needed_, was_enabled_ = false, cached_ = false;
  c10::DeviceType device_ = c10::kCPU;
  at::ScalarType before_ = at::kFloat;
};

at::Tensor leaf(const at::Tensor &tensor) { return tensor.detach().set_requires_grad(true); }

at::Tensor pad_backward(const at::Tensor &gradient, const at::Tensor &data, const at::Tensor &batch_sizes,
                        bool batch_first, int64_t length) {
  const Recording recording(/*enables_gradients=*/true);
  const at::Tensor rows = leaf(own_rows(data, batch_sizes));
  const at::Tensor padded = std::get<0>(at::_pad_packed_sequence(rows, own_sizes(batch_sizes), batch_first, 0, length));
  const bool wanted = true;
  return with_rows(differentiate({rows}, &wanted, {padded}, {gradient})[0], data.size(0));
}

// A recurrent layer on PyTorch's own rows, where autograd records what the wanted gradients need: of the data, `hx` and
// `params`, in this order. PyTorch may round otherwise where it records nothing. Of those that are `cached` autocast
// casts each once, and their gradients are added up in its dtype.
class Layer {
 public:
  Layer(const c10::List<bool> &wanted, const c10::List<bool> &cached, const at::Tensor &data, at::TensorList hx,
        at::TensorList params)
      : wanted_(std::make_unique<bool[]>(wanted.size())) {
    inputs_.push_back(data);
    inputs_.insert(inputs_.end(), hx.begin(), hx.end());
    inputs_.insert(inputs_.end(), params.begin(), params.end());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      wanted_[i] = wanted[i];
      if (wanted[i]) inputs_[i] = leaf(inputs_[i]);
    }
    taken_ = inputs_;
    for (size_t i = 0; i < cached.size(); ++i) {
      if (wanted_[i] && !cached[i]) taken_[i] = at::alias(inputs_[i]);  // which is no leaf
    }
    const at::TensorList all(taken_);
    hx_ = all.slice(1, hx.size());
    params_ = all.slice(1 + hx.size());
  }

  template <typename... Rest>
  Tensors run(const std::string &kind, const at::Tensor &sizes, Rest... rest) const {
    if (kind == "lstm") {
      auto [output, h, c] = at::lstm(taken_[0], sizes, hx_, params_, rest...);
      return {output, h, c};
    }
    const auto call = [&](auto function) {
      auto [output, h] = function(taken_[0], sizes, hx_[0], params_, rest...);
      return Tensors{output, h};
    };
    if (kind == "gru") return call([](const auto &...args) { return at::gru(args...); });
    if (kind == "rnn_tanh") return call([](const auto &...args) { return at::rnn_tanh(args...); });
    TORCH_CHECK(kind == "rnn_relu", "PyTorch has no recurrent layer ", kind);
    return call([](const auto &...args) { return at::rnn_relu(args...); });
  }

  // The wanted gradients.
  Tensors gradients(const Tensors &results, Tensors given) const {
    const Tensors all = differentiate(inputs_, wanted_.get(), results, std::move(given));
    Tensors found;
    for (size_t i = 0; i < all.size(); ++i) {
      if (wanted_[i]) found.push_back(all[i].defined() ? all[i].contiguous() : at::zeros_like(inputs_[i].detach()));
    }
    return found;
  }

 private:
  std::unique_ptr<bool[]> wanted_;
  Tensors inputs_, taken_;
  at::TensorList hx_, params_;
};

Tensors rnn(const c10::List<bool> &wanted, bool enables_gradients, const std::string &kind,
            std::optional<at::ScalarType> cast_to, const c10::List<bool> &cached, std::optional<at::ScalarType> gives,
            const at::Tensor &data, const at::Tensor &batch_sizes, at::TensorList hx, at::TensorList params,
            bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const Recording recording(enables_gradients);
  const Layer layer(wanted, cached, own_rows(data, batch_sizes), hx, params);
  const Casting casting(cast_to, data.device().type());
  Tensors results = layer.run(kind, own_sizes(batch_sizes), has_biases, layers, dropout, train, bidirectional);
  for (at::Tensor &result : results) result = result.detach().to(gives.value_or(result.scalar_type()));
  results[0] = with_rows(results[0], data.size(0));
  return results;
}

// Runs the layer again.
Tensors rnn_backward(const c10::List<std::optional<at::Tensor>> &gradients, const c10::List<bool> &wanted,
                     const std::string &kind, std::optional<at::ScalarType> cast_to, const c10::List<bool> &cached,
                     const at::Tensor &data, const at::Tensor &batch_sizes, at::TensorList hx, at::TensorList params,
                     bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const Recording recording(/*enables_gradients=*/true);
  const Layer layer(wanted, cached, own_rows(data, batch_sizes), hx, params);
  const Tensors results = [&] {
    const Casting casting(cast_to, data.device().type());
    return layer.run(kind, own_sizes(batch_sizes), has_biases, layers, dropout, train, bidirectional);
  }();
  Tensors given;
  for (const std::optional<at::Tensor> &gradient : gradients) given.push_back(gradient.value_or(at::Tensor()));
  if (given[0].defined()) given[0] = own_rows(given[0], batch_sizes);
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].defined()) given[i] = given[i].to(results[i].scalar_type());
  }
  Tensors found = layer.gradients(results, std::move(given));
  if (wanted[0]) found[0] = with_rows(found[0], data.size(0));
  return found;
}

// Between layers, as at::dropout computes it on a CPU. Gives what it multiplies by, too.
std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor &data, const at::Tensor &batch_sizes, double p) {
  const at::Tensor own = own_rows(data, batch_sizes);
  const at::Tensor factors = p == 1 ? at::zeros_like(own) : at::empty_like(own).bernoulli_(1 - p).div_(1 - p);
  return {with_rows(at::mul(own, factors), data.size(0)), with_rows(factors, data.size(0))};
}

TORCH_LIBRARY(bridge, library) {
  const std::string layer =
      "Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, "
      "bool train, bool bidirectional) -> Tensor[]";
  const auto define = [&](const std::string &schema, auto function, std::vector<at::Tag> tags = {}) {
    library.def(torch::schema(schema.c_str(), /*allow_typeinfer=*/false),
                torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, function), tags);
  };
  define("batch_sizes(Tensor lengths, int batch, int steps) -> Tensor", batch_sizes_of);
  define("pack(Tensor input, Tensor lengths, bool batch_first) -> Tensor", pack);
  define("pack_backward(Tensor gradient, int[] size, Tensor batch_sizes, bool batch_first) -> Tensor", pack_backward);
  define("longest(Tensor batch_sizes) -> Tensor", longest);
  define(
      "pad(Tensor data, Tensor batch_sizes, int batch, bool batch_first, float value, int length) -> (Tensor, Tensor)",
      pad);
  define("pad_backward(Tensor gradient, Tensor data, Tensor batch_sizes, bool batch_first, int length) -> Tensor",
         pad_backward);
  define(
      "rnn(bool[] wanted, bool enables_gradients, str kind, ScalarType? cast_to, bool[] cached, ScalarType? gives, " +
          layer,
      rnn);
  define("rnn_backward(Tensor?[] gradients, bool[] wanted, str kind, ScalarType? cast_to, bool[] cached, " + layer,
         rnn_backward);
  define("dropout(Tensor data, Tensor batch_sizes, float p) -> (Tensor, Tensor)", dropout,
         {at::Tag::nondeterministic_seeded});
}

}  // namespace
}  // namespace ms_ext

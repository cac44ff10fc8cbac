// What bridge.kernels.extension writes around a function of a PyTorch extension.
//
//   // sigmoid(Tensor x) -> Tensor
//   using sigmoid_takes = Parameters<decltype(::sigmoid)>;
//   static_assert(sigmoid_takes::count == 1, "...");
//   static_assert(sigmoid_takes::fits<0, Tensor>, "...");
//   struct sigmoid_shim {
//     Tensor x;
//     explicit sigmoid_shim(Arguments &args) { args >> x; }
//     void operator()(Call &c) const {
//       c.store([&] { return call(::sigmoid, c(x)); });
//     }
//   };
//   MS_EXT_CPU_SHIM(sigmoid)
//   MS_EXT_RUN(sigmoid)
#pragma once

#include <ATen/core/List.h>

#include <functional>
#include <limits>
#include <type_traits>

#include "prebuilt.h"
#include "shim.h"

namespace ms_ext {

template <typename T>
using Plain = std::remove_cvref_t<T>;

// Whether a function's parameter takes what a shim holds for an argument. Numbers may be narrower than ATen's; `call`
// checks that integers fit.
template <typename Parameter, typename Held>
constexpr bool takes() {
  using P = Plain<Parameter>;
  if constexpr (std::is_same_v<Held, Tensor>) {
    return std::is_same_v<P, at::Tensor>;
  } else if constexpr (std::is_same_v<Held, OptionalTensor>) {
    return std::is_same_v<P, std::optional<at::Tensor>>;
  } else if constexpr (std::is_same_v<Held, bool>) {
    return std::is_same_v<P, bool>;
  } else if constexpr (std::is_same_v<Held, int64_t>) {
    return std::is_integral_v<P> && !std::is_same_v<P, bool>;
  } else if constexpr (std::is_same_v<Held, double>) {
    return std::is_floating_point_v<P>;
  } else if constexpr (std::is_same_v<Held, TensorList>) {
    return std::is_convertible_v<const std::vector<at::Tensor> &, Parameter>;
  } else if constexpr (std::is_same_v<Held, OptionalTensorList>) {
    return std::is_convertible_v<const c10::List<std::optional<at::Tensor>> &, Parameter>;
  } else {
    return std::is_convertible_v<const Held &, Parameter>;
  }
}

// The parameters of a function type.
template <typename Function>
struct Parameters;
template <typename Result, typename... P>
struct Parameters<Result(P...)> {
  static constexpr size_t count = sizeof...(P);
  template <size_t I, typename Held>
  static constexpr bool fits = [] {
    if constexpr (I < count) {
      return takes<std::tuple_element_t<I, std::tuple<P...>>, Held>();
    } else {
      return true;  // the check of the count has failed
    }
  }();
};
template <typename Result, typename... P>
struct Parameters<Result(P...) noexcept> : Parameters<Result(P...)> {};

template <typename Parameter, typename Value>
decltype(auto) pass(Value &&value) {
  using P = Plain<Parameter>;
  if constexpr (std::is_same_v<Plain<Value>, int64_t> && std::is_integral_v<P>) {
    TORCH_CHECK(value >= static_cast<int64_t>(std::numeric_limits<P>::min()) &&
                    (sizeof(P) == sizeof(int64_t) || value <= static_cast<int64_t>(std::numeric_limits<P>::max())),
                value, " does not fit into the integer that the function takes");
    return static_cast<P>(value);
  } else if constexpr (std::is_same_v<Plain<Value>, double> && std::is_floating_point_v<P>) {
    return static_cast<P>(value);
  } else {
    return std::forward<Value>(value);
  }
}

template <typename Result, typename... P, typename... Values>
Result call(Result (*function)(P...), Values &&...values) {
  return function(pass<P>(std::forward<Values>(values))...);
}

// Results that are kept rather than brought to MindSpore's memory: of a call on PyTorch's tensors, or of one whose
// shapes follow from data. bridge/kernels/native.py reads them.
struct Results {
  std::vector<at::Tensor> tensors;
  std::string error;
};

// What `evaluate` stores, or the error that it throws; the caller of the C functions in function.cpp frees it.
Results *keep_results(const std::function<void(Results &)> &evaluate);

// Runs the operator once on the parameters, which lie on the CUDA device of this index, or on the host if it is -1.
template <typename Op>
Results *run(const char *text, int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
             int cuda_device) {
  return keep_results([&](Results &kept) {
    Arguments arguments(text);
    const Op op(arguments);
    const c10::Device device(cuda_device < 0 ? c10::kCPU : c10::kCUDA, static_cast<c10::DeviceIndex>(cuda_device));
    Turns turns;
    Call call(get_torch_tensors(nparam, params, ndims, shapes, dtypes, device), arguments.inputs(), device, turns);
    call.keep(kept.tensors);
    op(call);
  });
}

}  // namespace ms_ext

#define MS_EXT_RUN(op)                                                                                 \
  extern "C" ms_ext::Results *aten_##op##Run(const char *text, int nparam, void **params, int *ndims,  \
                                             int64_t **shapes, const char **dtypes, int cuda_device) { \
    return ms_ext::run<op##_shim>(text, nparam, params, ndims, shapes, dtypes, cuda_device);           \
  }

// What bridge.kernels.extension writes around a function of a PyTorch extension.
//
//   // sigmoid(Tensor x) -> Tensor
//   using sigmoid_takes = Parameters<FunctionType<decltype(::sigmoid)>>;
//   static_assert(sigmoid_takes::count == 1, "...");
//   static_assert(sigmoid_takes::fits<0, Tensor>, "...");
//   static_assert(sigmoid_takes::returns, "...");
//   struct sigmoid_shim {
//     Tensor x;
//     explicit sigmoid_shim(Arguments &args) { args >> x; }
//     void operator()(Call &c) const {
//       c.store([&] { return flat(call(::sigmoid, c(x))); });
//     }
//   };
//   MS_EXT_CPU_SHIM(sigmoid)
//   MS_EXT_RUN(sigmoid)
#pragma once

#include <ATen/core/List.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include <functional>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "prebuilt.h"
#include "shim.h"

namespace ms_ext {

template <typename T>
using Plain = std::remove_cvref_t<T>;

// The type of a function, of what decltype says of an expression for it.
template <typename T>
using FunctionType = std::remove_pointer_t<std::decay_t<T>>;

// What a shim passes for what it holds: Call makes tensors of places.
template <typename Held>
struct Passed {
  using type = Held;
};
template <typename Held>
  requires requires(const Call &call, const Held &held) { call(held); }
struct Passed<Held> {
  using type = Plain<decltype(std::declval<const Call &>()(std::declval<const Held &>()))>;
};

template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <typename T>
inline constexpr bool is_vector = false;
template <typename T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <typename T>
concept TupleLike = requires { std::tuple_size<T>::value; };

// Whether a value of one type makes a parameter of another. Numbers may be narrower than ATen's; `converted` checks
// that integers fit, and lists for parameters of a fixed size.
template <typename To, typename From>
constexpr bool converts() {
  if constexpr (std::is_same_v<To, From>) {
    return true;
  } else if constexpr (std::is_same_v<From, bool> || std::is_same_v<To, bool>) {
    return std::is_class_v<To> && std::is_convertible_v<const From &, To>;
  } else if constexpr (std::is_same_v<From, int64_t>) {
    return std::is_integral_v<To> || (std::is_class_v<To> && std::is_convertible_v<int64_t, To>);
  } else if constexpr (std::is_same_v<From, double>) {
    return std::is_floating_point_v<To> || (std::is_class_v<To> && std::is_convertible_v<double, To>);
  } else if constexpr (std::is_same_v<From, std::string>) {
    return std::is_same_v<To, const char *> || std::is_convertible_v<const std::string &, To>;
  } else if constexpr (std::is_same_v<From, std::optional<at::Tensor>> && std::is_same_v<To, at::Tensor>) {
    return true;  // None is an undefined tensor
  } else if constexpr (is_optional<From> && is_optional<To>) {
    return converts<typename To::value_type, typename From::value_type>();
  } else if constexpr (is_vector<From> && is_vector<To>) {
    return converts<typename To::value_type, typename From::value_type>();
  } else if constexpr (is_vector<From> && TupleLike<To>) {
    return []<size_t... I>(std::index_sequence<I...>) {
      return (converts<std::tuple_element_t<I, To>, typename From::value_type>() && ...);
    }(std::make_index_sequence<std::tuple_size_v<To>>());
  } else {
    return std::is_convertible_v<const From &, To>;
  }
}

template <typename To, typename From>
To converted(const From &value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, int64_t> && std::is_integral_v<To>) {
    TORCH_CHECK(value >= static_cast<int64_t>(std::numeric_limits<To>::min()) &&
                    (sizeof(To) == sizeof(int64_t) || value <= static_cast<int64_t>(std::numeric_limits<To>::max())),
                value, " does not fit into the integer that the function takes");
    return static_cast<To>(value);
  } else if constexpr (std::is_same_v<From, double> && std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_same_v<From, std::string> && std::is_same_v<To, const char *>) {
    return value.c_str();
  } else if constexpr (std::is_same_v<From, std::optional<at::Tensor>> && std::is_same_v<To, at::Tensor>) {
    return value.value_or(at::Tensor());
  } else if constexpr (is_optional<From> && is_optional<To>) {
    return value ? To(converted<typename To::value_type>(*value)) : To();
  } else if constexpr (is_vector<From> && is_vector<To>) {
    To list;
    for (const auto &item : value) list.push_back(converted<typename To::value_type>(item));
    return list;
  } else if constexpr (is_vector<From> && TupleLike<To>) {
    TORCH_CHECK(value.size() == std::tuple_size_v<To>, "the function takes ", std::tuple_size_v<To>,
                " values there, not ", value.size());
    return [&value]<size_t... I>(std::index_sequence<I...>) {
      return To{converted<std::tuple_element_t<I, To>>(value[I])...};
    }(std::make_index_sequence<std::tuple_size_v<To>>());
  } else {
    To made = value;
    return made;
  }
}

// What a function may return: each kind as the tensors among the results.
inline void append(at::Tensor result, std::vector<at::Tensor> &results) { results.push_back(std::move(result)); }
template <typename T>
  requires std::is_arithmetic_v<T>
void append(T number, std::vector<at::Tensor> &results) {
  const auto type = std::is_same_v<T, bool> ? at::kBool : std::is_integral_v<T> ? at::kLong : at::kDouble;
  results.push_back(at::scalar_tensor(number, at::TensorOptions(type)));
}
template <typename T>
void append(const std::optional<T> &result, std::vector<at::Tensor> &results);
template <typename T>
void append(const std::vector<T> &list, std::vector<at::Tensor> &results);
template <typename T>
void append(const c10::List<T> &list, std::vector<at::Tensor> &results);
template <TupleLike T>
void append(const T &tuple, std::vector<at::Tensor> &results);

template <typename T>
void append(const std::optional<T> &result, std::vector<at::Tensor> &results) {
  if (result) {
    append(*result, results);
  } else {
    results.emplace_back();
  }
}
template <typename T>
void append(const std::vector<T> &list, std::vector<at::Tensor> &results) {
  for (const T &item : list) append(item, results);
}
template <typename T>
void append(const c10::List<T> &list, std::vector<at::Tensor> &results) {
  for (const T &item : list) append(item, results);
}
template <TupleLike T>
void append(const T &tuple, std::vector<at::Tensor> &results) {
  std::apply([&results](const auto &...item) { (append(item, results), ...); }, tuple);
}

template <typename T>
constexpr bool is_result() {
  if constexpr (std::is_same_v<T, at::Tensor> || std::is_arithmetic_v<T> || std::is_void_v<T>) {
    return true;
  } else if constexpr (is_optional<T> || is_vector<T>) {
    return is_result<typename T::value_type>();
  } else if constexpr (std::is_same_v<T, c10::List<at::Tensor>>) {
    return true;
  } else if constexpr (TupleLike<T>) {
    return []<size_t... I>(std::index_sequence<I...>) {
      return (is_result<std::tuple_element_t<I, T>>() && ...);
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else {
    return false;
  }
}

template <typename T>
std::vector<at::Tensor> flat(const T &returned) {
  std::vector<at::Tensor> results;
  if constexpr (is_result<T>()) append(returned, results);
  return results;
}

// For the gradients that a function leaves undefined, zeros like the tensors that they belong to.
inline std::vector<at::Tensor> without_undefined(std::vector<at::Tensor> gradients,
                                                 const std::vector<std::optional<at::Tensor>> &like) {
  for (size_t i = 0; i < gradients.size() && i < like.size(); ++i) {
    if (!gradients[i].defined() && like[i]) gradients[i] = at::zeros_like(*like[i]);
  }
  return gradients;
}

// The outputs that a function wrote to, and what it returned at these places.
inline std::vector<at::Tensor> with_written(Call &call, size_t written, const std::vector<at::Tensor> &returned,
                                            std::initializer_list<size_t> places) {
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < written; ++i) results.push_back(call.out(i));
  for (const size_t place : places) results.push_back(returned.at(place));
  return results;
}

// The parameters of a function type, and whether it returns what `flat` takes.
template <typename Function>
struct Parameters;
template <typename Result, typename... P>
struct Parameters<Result(P...)> {
  static constexpr size_t count = sizeof...(P);
  static constexpr bool returns = is_result<Plain<Result>>();
  template <size_t I, typename Held>
  static constexpr bool fits = [] {
    if constexpr (I < count) {
      using Parameter = std::tuple_element_t<I, std::tuple<P...>>;
      return converts<Plain<Parameter>, typename Passed<Held>::type>();
    } else {
      return true;  // the check of the count has failed
    }
  }();
};
template <typename Result, typename... P>
struct Parameters<Result(P...) noexcept> : Parameters<Result(P...)> {};

// Calls a function with values of its own: it may take them as it likes, `at::Tensor &` among others.
template <typename Result, typename... P, typename... Values>
Result call(Result (*function)(P...), const Values &...values) {
  if constexpr (sizeof...(P) == sizeof...(Values)) {
    std::tuple<Plain<P>...> own(converted<Plain<P>>(values)...);
    return std::apply([function](auto &...value) -> Result { return function(static_cast<P &&>(value)...); }, own);
  } else {
    throw std::logic_error("the check of the count has failed");
  }
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

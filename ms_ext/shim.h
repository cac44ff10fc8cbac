// What a generated shim is made of. A shim is a struct with the arguments of one ATen overload, which are decoded once
// per kernel, and one ATen call, which runs per launch:
//
//   // leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor
//   struct leaky_relu_shim {
//     Tensor self;
//     at::Scalar negative_slope;
//     MS_EXT_ONCE explicit leaky_relu_shim(Arguments &args) { args >> self >> negative_slope; }
//     void operator()(Call &c) const { at::leaky_relu_out(c.out(0), c(self), negative_slope); }
//   };
//   MS_EXT_CPU_SHIM(leaky_relu)
#pragma once

#include <c10/util/FunctionRef.h>

#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arguments.h"
#include "donation.h"
#include "infer.h"
#include "mindspore/aot_extra.h"
#include "ms_ext.h"

namespace c10 {
template <class T>
class List;  // whose header takes the compiler as long as the rest: who calls with such a list includes it
}

namespace ms_ext {

// One launch: views of MindSpore's tensors, and the places for the results.
class Call {
 public:
  // `turns` is the kernel's.
  Call(std::vector<at::Tensor> tensors, int inputs, c10::Device device, Turns &turns)
      : tensors_(std::move(tensors)), inputs_(static_cast<size_t>(inputs)), device_(device), turns_(turns) {}

  const at::Tensor &operator()(const Tensor &argument) const {
    return argument.index < 0 ? argument.number : tensors_[static_cast<size_t>(argument.index)];
  }
  std::optional<at::Tensor> operator()(const OptionalTensor &argument) const;
  std::vector<at::Tensor> operator()(const TensorList &arguments) const;
  c10::List<std::optional<at::Tensor>> operator()(const OptionalTensorList &arguments) const;

  c10::Device device() const { return device_; }
  at::ArrayRef<at::Tensor> inputs() const { return at::ArrayRef<at::Tensor>(tensors_).slice(0, inputs_); }

  // An output's place in MindSpore's memory, for an out= variant to write to.
  at::Tensor &out(size_t i) { return tensors_[inputs_ + i]; }
  at::ArrayRef<at::Tensor> outs() const { return at::ArrayRef<at::Tensor>(tensors_).slice(inputs_); }

  // All of them: the inputs, and then the outputs.
  size_t size() const { return tensors_.size(); }
  const at::Tensor &at(size_t i) const { return tensors_[i]; }
  at::Tensor &at(size_t i) { return tensors_[i]; }

  // Runs a functional call, and brings its results to the outputs. An undefined result has no output.
  template <typename Function>
  void store(Function &&function) {
    Donation donation(outs(), turns_);
    std::vector<at::Tensor> results;
    flatten(function(), results);
    take(std::move(results), donation);
  }

  // Throws if results are not as they were inferred.
  void check(const std::vector<at::Tensor> &results) const;

  // Brings results, which may lie in outputs' memory already, to the outputs.
  void place(std::vector<at::Tensor> results);

  // From here on results are appended to `results` instead, which the caller keeps alive.
  void keep(std::vector<at::Tensor> &results) { kept_ = &results; }

  // Ends the launch: the views.
  std::vector<at::Tensor> end() { return std::move(tensors_); }

  // Throws if the ATen call left MindSpore's memory (a resized or restrided out tensor) or stored too few results.
  void check_outputs(void **params, int64_t **shapes, const int *ndims) const;

 private:
  static void flatten(at::Tensor result, std::vector<at::Tensor> &results) { results.push_back(std::move(result)); }
  static void flatten(const std::vector<at::Tensor> &list, std::vector<at::Tensor> &results) {
    results.insert(results.end(), list.begin(), list.end());
  }
  template <typename... T>
  static void flatten(const std::tuple<T...> &tuple, std::vector<at::Tensor> &results) {
    std::apply([&results](const auto &...result) { (flatten(result, results), ...); }, tuple);
  }

  void take(std::vector<at::Tensor> results, Donation &donation);

  std::vector<at::Tensor> tensors_;
  size_t inputs_;
  c10::Device device_;
  Turns &turns_;
  std::vector<at::Tensor> *kept_ = nullptr;
};

// The views of a kernel's last launch. Pointing them elsewhere takes a fraction of the time of making new ones.
class Views {
 public:
  // The views that get_torch_tensors would make, out of those kept where they fit.
  std::vector<at::Tensor> take(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
                               c10::Device device);
  // Keeps those that are nobody else's.
  void keep(std::vector<at::Tensor> views);

 private:
  std::mutex mutex_;  // kernels are launched by several threads
  std::vector<at::Tensor> kept_;
};

// One kernel: the decoded arguments of an overload, and what its launches leave for the next.
class Kernel : public KernelData {
 public:
  Kernel();  // in kernel.cpp, like the destructor: there are thousands of kernels to compile
  ~Kernel() override;
  virtual void operator()(Call &call) const = 0;
  int inputs = 0;
  bool uses_autograd = false;
  bool saves_random_state = false;  // into the last output, for the gradient to draw the same again
  mutable std::once_flag first_launch;

  // The kernel for a launch with these shapes: this one, unless some arguments are lengths of inputs.
  std::shared_ptr<const Kernel> at(int64_t **shapes) const;

  // Decodes the arguments, from `text` and the lengths of inputs.
  using Make = Kernel *(*)(Arguments &arguments);
  static Kernel *decode(Make make, std::string text, std::vector<int64_t> lengths = {});

  mutable Turns turns;
  mutable Views views;

 private:
  // Where arguments are lengths of inputs: what makes a kernel for others, and the last one made.
  struct Lengths {
    Make make;
    std::string text;
    std::vector<int> inputs;
    std::mutex mutex;
    std::vector<int64_t> last;
    std::shared_ptr<const Kernel> kernel;
  };
  std::unique_ptr<Lengths> lengths_;
};

// For what runs once for a kernel, not in each launch: g++ need not optimize it, which takes a quarter of its time.
#if defined(__GNUC__) && !defined(__clang__)
#define MS_EXT_ONCE __attribute__((optimize("O0")))
#else
#define MS_EXT_ONCE
#endif

template <typename Op>
class KernelOf final : public Kernel {
 public:
  MS_EXT_ONCE explicit KernelOf(Arguments &arguments) : op_(arguments) {
    uses_autograd = requires { Op::kUsesAutograd; };
  }
  MS_EXT_ONCE ~KernelOf() override {}
  void operator()(Call &call) const override { op_(call); }

 private:
  Op op_;
};

// The attributes of the primitive that bridge/primitive/kernel.py sets.
std::string read_attribute(void *extra, const char *name);

// What errors call the kernel: "aten.add.Tensor", or a name with a namespace that is not ATen's.
std::string label(void *extra);

int init(void *extra, Kernel::Make make);

template <typename Op>
MS_EXT_ONCE Kernel *make_kernel(Arguments &arguments) {
  return new KernelOf<Op>(arguments);
}

// One launch on `device`, for which the caller has made everything ready. Throws std::runtime_error with the operator's
// name and PyTorch's message.
void launch(c10::Device device, int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
            void *extra);

// The part of it that every device and purpose shares: calls `run` with the kernel and views of its parameters.
void on_views(c10::Device device, int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
              void *extra, c10::function_ref<void(const Kernel &, Call &)> run);

// What a shim hands its launch to: with the CPU's floating-point mode (cpu.cpp), or on MindSpore's CUDA stream
// (cuda/launch.cu).
int launch_cpu(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream, void *extra);
int launch_cuda(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                void *extra);

}  // namespace ms_ext

// MindSpore finds the functions of an operator by their names.
#define MS_EXT_SHIM_(op, result, launch)                                                                               \
  extern "C" int aten_##op##Init(int *, int64_t **, const char **, void *extra) {                                      \
    return ms_ext::init(extra, ms_ext::make_kernel<op##_shim>);                                                        \
  }                                                                                                                    \
  extern "C" int aten_##op(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream, \
                           void *extra) {                                                                              \
    return ms_ext::launch(nparam, params, ndims, shapes, dtypes, stream, extra);                                       \
  }                                                                                                                    \
  extern "C" result aten_##op##InferShape(int *ndims, int64_t **shapes, void *extra) {                                 \
    return ms_ext::infer<result>(ndims, shapes, extra);                                                                \
  }

// For an operator with one tensor as its result, and for one with a tuple.
#define MS_EXT_CPU_SHIM(op) MS_EXT_SHIM_(op, ms_ext::Shape, launch_cpu)
#define MS_EXT_CPU_SHIM_TUPLE(op) MS_EXT_SHIM_(op, ms_ext::Shapes, launch_cpu)
#define MS_EXT_CUDA_SHIM(op) MS_EXT_SHIM_(op, ms_ext::Shape, launch_cuda)
#define MS_EXT_CUDA_SHIM_TUPLE(op) MS_EXT_SHIM_(op, ms_ext::Shapes, launch_cuda)

#include "shim.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <c10/util/Exception.h>
#include <pmmintrin.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <atomic>
#include <stdexcept>

#include "random_state.h"

// OpenMP's, where PyTorch's version of it has it.
extern "C" int omp_pause_resource_all(int kind) __attribute__((weak));

namespace ms_ext {

std::optional<at::Tensor> Call::operator()(const OptionalTensor &argument) const {
  if (!argument) return std::nullopt;
  return (*this)(*argument);
}

std::vector<at::Tensor> Call::operator()(const TensorList &arguments) const {
  std::vector<at::Tensor> tensors;
  tensors.reserve(arguments.size());
  for (const auto &argument : arguments) tensors.push_back((*this)(argument));
  return tensors;
}

c10::List<std::optional<at::Tensor>> Call::operator()(const OptionalTensorList &arguments) const {
  c10::List<std::optional<at::Tensor>> tensors;
  tensors.reserve(arguments.size());
  for (const auto &argument : arguments) tensors.push_back((*this)(argument));
  return tensors;
}

void Call::take(std::vector<at::Tensor> results, Donation &donation) {
  std::erase_if(results, [](const at::Tensor &result) { return !result.defined(); });
  donation.end(results);
  if (kept_ != nullptr) {
    *kept_ = std::move(results);
  } else {
    place(std::move(results));
  }
}

void Call::place(std::vector<at::Tensor> results) {
  const auto outputs = outs();
  TORCH_CHECK(results.size() == outputs.size(), "it gave ", results.size(), " results, but ", outputs.size(),
              " were inferred");
  const auto in_place = [](const at::Tensor &result, const at::Tensor &output) {
    return result.const_data_ptr() == output.const_data_ptr() && result.is_contiguous() && !result.is_conj() &&
           !result.is_neg();
  };
  // A result in another output's memory, or in its own with other strides, must leave before that is written to.
  for (size_t i = 0; i < results.size(); ++i) {
    at::Tensor &result = results[i];
    TORCH_CHECK(result.sizes() == outputs[i].sizes() && result.scalar_type() == outputs[i].scalar_type(), "result ", i,
                " is ", result.scalar_type(), " ", result.sizes(), ", but ", outputs[i].scalar_type(), " ",
                outputs[i].sizes(), " was inferred");
    if (in_place(result, outputs[i])) continue;
    for (const auto &output : outputs) {
      if (result.numel() > 0 && result.storage().data() == output.storage().data()) {
        result = result.clone(c10::MemoryFormat::Contiguous);
        break;
      }
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!in_place(results[i], outputs[i])) outputs[i].copy_(results[i]);
  }
}

void Call::check_outputs(void **params, int64_t **shapes, const int *ndims) const {
  for (size_t i = inputs_; i < tensors_.size(); ++i) {
    const at::Tensor &output = tensors_[i];
    const at::IntArrayRef expected(shapes[i], static_cast<size_t>(ndims[i]));
    TORCH_CHECK(output.sizes() == expected && output.is_contiguous() &&
                    (output.numel() == 0 || output.const_data_ptr() == params[i]),
                "output ", i - inputs_, " became ", output.sizes(), " with strides ", output.strides(), ", but ",
                expected, " was inferred");
  }
}

namespace {

// Points the view at `data`. Whether it could be.
bool point(const at::Tensor &view, void *data, int ndim, const int64_t *shape, const char *dtype, c10::Device device) {
  if (!view.defined() || view.device() != device || view.scalar_type() != scalar_type(dtype) ||
      view.sizes() != at::IntArrayRef(shape, static_cast<size_t>(ndim)) || !view.is_contiguous()) {
    return false;
  }
  view.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(data, device));
  return true;
}

bool is_ours_alone(const at::Tensor &view) {
  return view.use_count() == 1 && view.storage().use_count() == 1 &&
         view.unsafeGetTensorImpl()->autograd_meta() == nullptr;
}

}  // namespace

std::vector<at::Tensor> Views::take(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
                                    c10::Device device) {
  std::vector<at::Tensor> views;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    views = std::move(kept_);
  }
  views.resize(static_cast<size_t>(nparam));
  for (int i = 0; i < nparam; ++i) {
    at::Tensor &kept = views[static_cast<size_t>(i)];
    if (!point(kept, params[i], ndims[i], shapes[i], dtypes[i], device)) {
      kept = view(params[i], ndims[i], shapes[i], dtypes[i], device);
    }
  }
  return views;
}

void Views::keep(std::vector<at::Tensor> views) {
  for (at::Tensor &view : views) {
    if (!is_ours_alone(view)) view.reset();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  kept_ = std::move(views);
}

Kernel::Kernel() = default;
Kernel::~Kernel() = default;

std::string read_attribute(void *extra, const char *name) {
  std::string text;
  ms_ext_read_attribute(
      extra, name,
      [](const char *data, unsigned long size, void *to) { static_cast<std::string *>(to)->assign(data, size); },
      &text);
  return text;
}

std::string label(void *extra) {
  const std::string name = read_attribute(extra, "aten_op");
  return name.find("::") == std::string::npos ? "aten." + name : name;
}

Kernel *Kernel::decode(Make make, std::string text, std::vector<int64_t> lengths) {
  Arguments arguments(text, std::move(lengths));
  std::unique_ptr<Kernel> kernel(make(arguments));
  kernel->saves_random_state = arguments.saves_random_state();
  kernel->inputs = arguments.inputs();
  if (!arguments.length_inputs().empty()) {
    kernel->lengths_ = std::make_unique<Lengths>();
    kernel->lengths_->make = make;
    kernel->lengths_->text = std::move(text);
    kernel->lengths_->inputs = arguments.length_inputs();
  }
  return kernel.release();
}

std::shared_ptr<const Kernel> Kernel::at(int64_t **shapes) const {
  if (lengths_ == nullptr) return {std::shared_ptr<const Kernel>(), this};  // owned by its primitive
  std::vector<int64_t> lengths;
  for (const int input : lengths_->inputs) lengths.push_back(shapes[input][0]);
  const std::lock_guard<std::mutex> lock(lengths_->mutex);
  if (lengths_->kernel == nullptr || lengths_->last != lengths) {
    lengths_->kernel.reset(decode(lengths_->make, lengths_->text, lengths));
    lengths_->last = std::move(lengths);
  }
  return lengths_->kernel;
}

int init(void *extra, Kernel::Make make) {
  ms_ext_set_kernel_data(extra, Kernel::decode(make, read_attribute(extra, "aten_args")));
  return 0;
}

namespace {

// MindSpore's graph threads flush denormal numbers to zero; PyTorch's kernels run with them.
class WithDenormals {
 public:
  WithDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ & ~(_MM_FLUSH_ZERO_MASK | _MM_DENORMALS_ZERO_MASK)); }
  ~WithDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
};

// MindSpore takes a graph's first step on a thread of its own and, if the graph is small, the later ones on the
// caller's. The team of threads that OpenMP made for the first would stay, and with more threads than cores OpenMP puts
// a team to sleep after each loop: 0.1 ms for a small operator. So only the main thread keeps its team after this.
void end_team() {
  constexpr int kSoft = 1;  // omp_pause_soft
  if (omp_pause_resource_all != nullptr && gettid() != getpid()) omp_pause_resource_all(kSoft);
}

}  // namespace

namespace {

// Calls `run` on views of the parameters, and names the operator in what it throws.
template <typename Run>
void run_on_views(c10::Device device, int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
                  void *extra, Run &&run) {
  try {
    const auto at_shapes = static_cast<const Kernel &>(*ms_ext_kernel_data(extra)).at(shapes);
    const Kernel &kernel = *at_shapes;
    // MindSpore differentiates; ATen's own autograd and view tracking would only cost time.
    std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd;
    if (!kernel.uses_autograd) below_autograd.emplace();
    auto tensors = kernel.views.take(nparam, params, ndims, shapes, dtypes, device);
    if (kernel.saves_random_state) {
      save_random_state(tensors.back());
      tensors.pop_back();
    }
    Call call(std::move(tensors), kernel.inputs, device, kernel.turns);
    run(kernel, call);
    kernel.views.keep(call.end());
  } catch (const c10::Error &error) {
    throw std::runtime_error(label(extra) + ": " + error.what_without_backtrace());
  } catch (const std::exception &error) {
    throw std::runtime_error(label(extra) + ": " + error.what());
  }
}

}  // namespace

void launch(c10::Device device, int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
            void *extra) {
  run_on_views(device, nparam, params, ndims, shapes, dtypes, extra, [&](const Kernel &kernel, Call &call) {
    kernel(call);
    call.check_outputs(params, shapes, ndims);
  });
}

int launch_cpu(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *, void *extra) {
  const WithDenormals with_denormals;
  launch(c10::kCPU, nparam, params, ndims, shapes, dtypes, extra);
  std::call_once(static_cast<const Kernel &>(*ms_ext_kernel_data(extra)).first_launch, end_team);
  return 0;
}

namespace {

// The inference in bridge/primitive/graph_shapes.py. It reports each output with ms_ext_add_shape, or an error with ms_ext_set_error.
using Infer = void (*)(const char *op, const char *args, const char *device, const char *dtypes, const int *ndims,
                       int64_t **shapes, void *inferred);
std::atomic<Infer> infer_in_python = nullptr;

struct Inferred {
  Shapes shapes;
  std::string error;
};

}  // namespace

Shapes infer_shapes(int *ndims, int64_t **shapes, void *extra) {
  const Infer infer = infer_in_python.load();
  if (infer == nullptr) {
    throw std::runtime_error(label(extra) + ": `import bridge` has to come before a graph that calls it is loaded");
  }
  Inferred inferred;
  infer(read_attribute(extra, "aten_op").c_str(), read_attribute(extra, "aten_args").c_str(),
        read_attribute(extra, "aten_device").c_str(), read_attribute(extra, "aten_dtypes").c_str(), ndims, shapes,
        &inferred);
  if (!inferred.error.empty()) throw std::runtime_error(inferred.error);
  return inferred.shapes;
}

}  // namespace ms_ext

extern "C" {

// For a kernel on the CPU whose results have no memory yet: runs it on the inputs, and passes each result to `take`
// with `to`, in order.
void ms_ext_evaluate(int ninputs, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *extra,
                     void (*take)(void *to, int ndim, const int64_t *shape, const void *data, size_t bytes), void *to) {
  const ms_ext::WithDenormals with_denormals;
  ms_ext::run_on_views(
      c10::kCPU, ninputs, params, ndims, shapes, dtypes, extra, [&](const ms_ext::Kernel &kernel, ms_ext::Call &call) {
        std::vector<at::Tensor> results;
        call.keep(results);
        kernel(call);
        for (const at::Tensor &result : results) {
          const at::Tensor dense = result.resolve_conj().resolve_neg().contiguous();
          take(to, static_cast<int>(dense.dim()), dense.sizes().data(), dense.const_data_ptr(), dense.nbytes());
        }
      });
}

void ms_ext_set_infer(ms_ext::Infer infer) { ms_ext::infer_in_python = infer; }

void ms_ext_add_shape(void *inferred, int ndim, const int64_t *shape) {
  static_cast<ms_ext::Inferred *>(inferred)->shapes.emplace_back(shape, shape + ndim);
}

void ms_ext_set_error(void *inferred, const char *message) {
  static_cast<ms_ext::Inferred *>(inferred)->error = message;
}

}  // extern "C"

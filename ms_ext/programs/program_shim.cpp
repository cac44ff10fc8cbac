// The kernel of a program: its argument text is the path of the program's file, or the name of a family.
#include <c10/util/Exception.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "infer.h"
#include "programs/families.h"
#include "programs/pool.h"
#include "programs/program.h"
#ifdef MS_EXT_CUDA
#include "cuda/replay.h"
#endif

// MKL's, if PyTorch has it.
extern "C" void mkl_serv_thread_free_buffers() __attribute__((weak));

namespace ms_ext {
namespace {

#ifndef MS_EXT_CUDA
// MindSpore takes a graph's first step on a thread of its own, and later ones may be on another. What the C library and
// MKL keep for the first thread would stay for good, beside what they keep for the other.
void give_back_memory() {
  if (gettid() == getpid()) return;
  if (mkl_serv_thread_free_buffers != nullptr) mkl_serv_thread_free_buffers();
  malloc_trim(0);
}
#endif

// Which forward programs of this process are differentiated, by a name of theirs. A graph does not say so.
class Differentiated {
 public:
  // Null if nobody has named it, as in a graph of another process that was kept.
  static const std::atomic<bool> *find(const std::string &name) {
    const std::lock_guard<std::mutex> lock(mutex());
    const auto found = names().find(name);
    return found == names().end() ? nullptr : &found->second;
  }

  static void set(const std::string &name, bool is_differentiated) {
    const std::lock_guard<std::mutex> lock(mutex());
    std::atomic<bool> &known = names()[name];
    known = known || is_differentiated;
  }

 private:
  static std::mutex &mutex() {
    static auto *const mutex = new std::mutex;
    return *mutex;
  }

  static std::unordered_map<std::string, std::atomic<bool>> &names() {
    static auto *const names = new std::unordered_map<std::string, std::atomic<bool>>;
    return *names;
  }
};

// Says each of PyTorch's warnings once in a process, as Python does. Where MindSpore launches, Python does not hear
// them, and PyTorch would say them in each step.
class Once final : public c10::WarningHandler {
 public:
  explicit Once(c10::WarningHandler *next) : next_(next) {}

  void process(const c10::Warning &warning) override {
    static auto *const mutex = new std::mutex;
    static auto *const said = new std::unordered_set<std::string>;
    const std::lock_guard<std::mutex> lock(*mutex);
    if (said->insert(warning.msg()).second) next_->process(warning);
  }

 private:
  c10::WarningHandler *next_;
};

bool is_family(const std::string &path) { return path.rfind("family ", 0) == 0; }

class program_shim {
 public:
  explicit program_shim(Arguments &args) {
    std::string name;
    int64_t inputs = 0;
    args >> path_ >> inputs >> name >> results_;
    is_differentiated_ = Differentiated::find(name);
    args.expect_more_inputs(static_cast<int>(inputs));
    if (!is_family(path_)) program_ = Program::load(path_);
  }

  void operator()(Call &c) const {
    Once once(c10::WarningUtils::get_warning_handler());
    const c10::WarningUtils::WarningHandlerGuard guard(&once);
    const auto program = program_ != nullptr ? program_ : program_of(path_, c.inputs());
    const bool needs_all = is_differentiated_ == nullptr || *is_differentiated_;
    const size_t wanted = needs_all ? program->outputs() : static_cast<size_t>(results_);
#ifdef MS_EXT_CUDA
    if (program_ != nullptr) {
      replay_.run(*program, wanted, c);
      return;
    }
#endif
    program->run(wanted, c);
#ifndef MS_EXT_CUDA
    std::call_once(first_launch_, give_back_memory);
#endif
  }

 private:
#ifdef MS_EXT_CUDA
  mutable Replay replay_;
#else
  mutable std::once_flag first_launch_;
#endif
  std::string path_;
  int64_t results_ = 0;  // without those that only the gradient needs
  const std::atomic<bool> *is_differentiated_ = nullptr;
  std::shared_ptr<const Program> program_;
};

}  // namespace
}  // namespace ms_ext

#ifdef MS_EXT_CUDA
// MindSpore's GPU kernel counts a tuple as one input when it looks for dtypes, so that those of its tensors come from
// elsewhere: the primitive has the dtypes of all inputs.
int launch_program(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                   void *extra) {
  std::istringstream text(ms_ext::read_attribute(extra, "aten_dtypes"));
  const std::vector<std::string> names{std::istream_iterator<std::string>(text), {}};
  std::vector<const char *> own(dtypes, dtypes + nparam);
  for (size_t i = 0; i < std::min(names.size(), own.size()); ++i) own[i] = names[i].c_str();
  return ms_ext::launch_cuda(nparam, params, ndims, shapes, own.data(), stream, extra);
}
#else
constexpr auto launch_program = ms_ext::launch_cpu;
#endif

extern "C" {

// Names a forward program before it is launched, and says whether the gradient is asked for that needs all it gives.
void ms_ext_name_program(const char *name, bool is_differentiated) {
  ms_ext::Differentiated::set(name, is_differentiated);
}

#ifndef MS_EXT_CUDA
void ms_ext_launch_program(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *extra,
                           const ms_ext::PoolMemory *memory) {
  const ms_ext::Pool pool(*memory);
  ms_ext::launch_cpu(nparam, params, ndims, shapes, dtypes, nullptr, extra);
}
#endif

int aten_programInit(int *, int64_t **, const char **, void *extra) {
  return ms_ext::init(extra, ms_ext::make_kernel<ms_ext::program_shim>);
}

int aten_program(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                 void *extra) {
  return launch_program(nparam, params, ndims, shapes, dtypes, stream, extra);
}

ms_ext::Shapes aten_programInferShape(int *ndims, int64_t **shapes, void *extra) {
  ms_ext::Arguments args(ms_ext::read_attribute(extra, "aten_args"));
  std::string path;
  args >> path;
  return ms_ext::is_family(path) ? ms_ext::infer_shapes(ndims, shapes, extra) : ms_ext::Program::load(path)->shapes();
}

// MindSpore's numbers for dtypes, which Python knows.
std::vector<int> aten_programInferType(std::vector<int>, void *extra) {
  std::istringstream types(ms_ext::read_attribute(extra, "aten_types"));
  return {std::istream_iterator<int>(types), std::istream_iterator<int>()};
}

}  // extern "C"

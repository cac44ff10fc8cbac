// A program: many ATen calls, captured from PyTorch, as one kernel. bridge/programs/text.py writes it.
#pragma once

#include <ATen/core/stack.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "boxed.h"
#include "donation.h"
#include "programs/known_views.h"
#include "programs/pool.h"
#include "shim.h"

namespace ms_ext {

// A tensor's place in memory that is passed whole.
struct Layout {
  int reg;
  Place place;
};

class Program {
 public:
  // Reads the program in a file; kernels with the same file share it.
  static std::shared_ptr<const Program> load(const std::string &path);

  // The same for nobody else.
  static std::shared_ptr<const Program> read(const std::string &path);

  explicit Program(Arguments args);

  // Makes the calls in order, on the inputs of `c`, and brings the first `results` to its outputs. The other outputs
  // stay as they are, and so what only they need is freed as soon as no later call needs it. While it is recorded as a
  // CUDA graph nothing may wait. Gives whether the results of all calls lie on the device of `c`.
  bool run(size_t results, Call &c, bool is_recorded = false) const;

  int inputs() const { return static_cast<int>(inputs_); }

  size_t outputs() const { return outputs_.size(); }

  size_t calls() const { return steps_.size(); }

  // Whether all calls are of PyTorch's own operators, which launch on PyTorch's current stream.
  bool is_pytorchs() const { return is_pytorchs_; }

  // Whether a call writes to this input, or to a view of it.
  bool writes_to(size_t input) const { return input < written_.size() && written_[input]; }

  // How often calls on a GPU have the host wait because of Step::on_host.
  size_t reads_in_calls() const;

  // Those of the results.
  Shapes shapes() const;

 private:
  using Registers = std::vector<at::Tensor>;

  // One ATen call. Registers hold the tensors.
  struct Step {
    explicit Step(Arguments &args);
    c10::OperatorHandle op;
    bool is_constant = false;          // it is made once in a process: what it gives is the same in each launch
    bool is_without_gradient = false;  // PyTorch made it so when it was captured: some of its kernels ask for that
    std::vector<Boxed> arguments;
    std::unique_ptr<KnownViews> views;  // null if its results are no views
    std::vector<int64_t> results;       // a register for each tensor; -1 if nobody uses it
    std::vector<int64_t> last;          // the registers that no later step uses
    std::vector<int64_t> donated;       // of the results that are to be allocated in an output's memory
    std::vector<int64_t> outputs;       // these outputs
    // Fused attention says on the host what it drew, and its gradient reads it there, but not while they are recorded.
    bool is_attention = false;
    std::vector<size_t> on_host;  // such arguments
    bool has_number = false;      // it takes one from a tensor, for which the host waits
    bool is_check = false;        // of what was taken for true when the program was captured
    std::string line;             // where it stands in the user's program, as an error says it; may be empty
    mutable Turns turns;
  };

  // A result of the program: a tensor, row by row, or memory with the tensors that lie in it.
  struct Output {
    std::vector<int64_t> sizes;
    bool is_memory = false;
    std::vector<Layout> layouts;
  };

  // What the program has on a device besides its inputs: the registers that are the same in each launch.
  using Constants = std::vector<std::pair<size_t, at::Tensor>>;

  // What a run needs; `results` and `stack` are empty between two steps.
  struct Workspace {
    Registers registers, results;
    torch::jit::Stack stack;
  };

  // For each step, registers that nobody needs after it.
  using Freed = std::vector<std::vector<size_t>>;

  // Null if all outputs are wanted.
  const Freed *freed_for(size_t results) const;
  Freed find_freed_for(size_t results) const;
  std::vector<bool> written() const;
  const Constants &constants_on(Call &c) const;
  Constants make_constants(Call &c) const;
  static void take_results(torch::jit::Stack &stack, Registers &results);
  static void bring_to_host(const Step &step, torch::jit::Stack &stack);
  static void make_call(const Step &step, Workspace &space, Call &c, bool is_recorded);
  // Gives whether the call's results lie on the device. The error that it throws has the step's line.
  static bool run_step(const Step &step, Workspace &space, Call &c, bool is_recorded);
  static bool make_step(const Step &step, Workspace &space, Call &c, bool is_recorded);
  static void give(const Pool &pool, size_t count, Registers &results, Call &c);
  static at::Tensor memory_of(const Output &output, const Registers &registers, const at::Tensor &like);

  size_t inputs_ = 0;
  size_t registers_ = 0;
  // The registers after the inputs.
  struct Constant {
    explicit Constant(Arguments &args);
    at::Tensor tensor;
    bool on_host;  // whatever the device is
  };

  std::vector<Constant> given_constants_;
  std::deque<Step> steps_;
  std::vector<Output> outputs_;
  std::vector<bool> written_;  // inputs
  bool is_pytorchs_ = false;
  mutable std::mutex constants_mutex_;
  mutable std::unordered_map<c10::Device, Constants> constants_;
  mutable std::mutex freed_mutex_;
  mutable std::map<size_t, Freed> freed_;  // by the number of results
};

}  // namespace ms_ext

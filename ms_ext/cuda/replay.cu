#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ScopeExit.h>

#include <map>
#include <string>
#include <utility>

#include "cuda/replay.h"
#include "programs/program.h"

namespace ms_ext {
namespace {

using at::cuda::CUDAGraph;
namespace allocator = c10::cuda::CUDACachingAllocator;

// A launch of fewer calls costs no more than that of a CUDA graph.
constexpr size_t kFewestCalls = 8;

// How often a kernel is recorded at most, because addresses have changed.
constexpr int kMostRecordings = 4;

// Counts what PyTorch says of calls that wait for the GPU.
class Waits final : public c10::WarningHandler {
 public:
  void process(const c10::Warning &warning) override {
    if (warning.msg().find("synchronizing") != std::string::npos) ++count;
  }
  size_t count = 0;
};

// Whether nothing of a run depends on the host: it waits for no result, and no call works there.
bool is_recordable(const Program &program, size_t results, Call &c) {
  Waits waits;
  const c10::WarningUtils::WarningHandlerGuard guard(&waits);
  auto &state = c10::cuda::warning_state();
  const auto mode = state.get_sync_debug_mode();
  const auto restore = c10::make_scope_exit([&] { state.set_sync_debug_mode(mode); });
  state.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_WARN);
  const bool stayed = program.run(results, c);
  return stayed && waits.count == program.reads_in_calls();
}

// Where the programs of one stream are recorded. They run one after another, so they share memory.
class Recorder {
 public:
  Recorder() {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    record_nothing(keeper_);
  }

  const c10::cuda::CUDAStream &stream() const { return stream_; }

  void begin(CUDAGraph &graph) const { graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal); }

  // Ends a recording that failed, so that PyTorch allocates and draws as before.
  void abandon(CUDAGraph &graph) const {
    try {
      graph.capture_end();
    } catch (const c10::Error &) {
      static_cast<void>(cudaGetLastError());
      allocator::endAllocateToPool(stream_.device_index(), pool_);
      allocator::releasePool(stream_.device_index(), pool_);
      CUDAGraph another;
      record_nothing(another);  // after which the generator draws as usual again
    }
  }

 private:
  void record_nothing(CUDAGraph &graph) const {
    begin(graph);
    const at::Tensor something = at::zeros({1}, at::device(c10::kCUDA));  // PyTorch warns of an empty one
    graph.capture_end();
  }

  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool();
  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  CUDAGraph keeper_;  // the memory stays as long as somebody uses it
};

const Recorder &recorder_of(const c10::cuda::CUDAStream &stream) {
  static std::mutex mutex;
  static auto *const recorders = new std::map<cudaStream_t, Recorder>;
  const std::lock_guard<std::mutex> lock(mutex);
  return (*recorders)[stream.stream()];
}

}  // namespace

Replay::Replay() = default;

Replay::~Replay() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) static_cast<void>(recording_.release());  // CUDA has ended before
}

// When other results are wanted than in the last launch.
void Replay::begin_anew(size_t results) {
  results_ = results;
  kind_ = kUnknown;
  recording_.reset();
  addresses_.clear();
}

void Replay::look_at_addresses(const Call &c) {
  addresses_.resize(c.inputs().size() + results_);
  changes_.resize(addresses_.size());
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const void *address = c.at(i).const_data_ptr();
    if (std::exchange(addresses_[i], address) != address) ++changes_[i];
  }
}

// Whether the recording is of these addresses.
bool Replay::is_at_hand() const {
  if (recording_ == nullptr) return false;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    if (recorded_[i] != nullptr && recorded_[i] != addresses_[i]) return false;
  }
  return true;
}

// Whether a tensor is recorded elsewhere and copied: the more recordings were in vain, the more are.
bool Replay::has_stand_in(const Program &program, const Call &c, size_t i) const {
  if (program.writes_to(i)) return false;
  const bool is_output = i >= c.inputs().size();
  return changes_[i] > (recordings_ == 1 ? 2 : 1) || (is_output && recordings_ > 2);
}

void Replay::record(const Program &program, Call &c) {
  if (++recordings_ == 1) allocator::emptyCache();  // of what launches call by call took
  recording_.reset();
  recorded_ = addresses_;
  stand_ins_.clear();
  for (size_t i = 0; i < addresses_.size(); ++i) {
    if (!has_stand_in(program, c, i)) continue;
    recorded_[i] = nullptr;
    stand_ins_.push_back({i, at::empty_like(c.at(i))});
  }
  const auto exchange = [&] {
    for (StandIn &stand_in : stand_ins_) std::swap(c.at(stand_in.position), stand_in.tensor);
  };
  const Recorder &recorder = recorder_of(c10::cuda::getCurrentCUDAStream());
  const c10::cuda::CUDAStreamGuard guard(recorder.stream());
  exchange();
  const auto restore = c10::make_scope_exit(exchange);
  auto graph = std::make_unique<CUDAGraph>();
  try {
    recorder.begin(*graph);
    program.run(results_, c, /*is_recorded=*/true);
    graph->capture_end();
    recording_ = std::move(graph);
  } catch (const c10::Error &) {
    kind_ = kNotRecordable;
    recorder.abandon(*graph);
  }
}

void Replay::replay(Call &c) const {
  std::vector<at::Tensor> inputs, for_inputs, outputs, for_outputs;
  for (const StandIn &stand_in : stand_ins_) {
    const bool is_input = stand_in.position < c.inputs().size();
    (is_input ? inputs : outputs).push_back(c.at(stand_in.position));
    (is_input ? for_inputs : for_outputs).push_back(stand_in.tensor);
  }
  if (!inputs.empty()) at::_foreach_copy_(for_inputs, inputs, /*non_blocking=*/true);
  recording_->replay();
  if (!outputs.empty()) at::_foreach_copy_(outputs, for_outputs, /*non_blocking=*/true);
}

void Replay::run(const Program &program, size_t results, Call &c) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (kind_ == kNotRecordable || program.calls() < kFewestCalls || !program.is_pytorchs()) {
    program.run(results, c);
    return;
  }
  if (results != results_) begin_anew(results);
  const bool is_first = addresses_.empty();
  look_at_addresses(c);
  if (is_first) {  // PyTorch prepares what it keeps, and waits for that
    program.run(results, c);
    return;
  }
  if (kind_ == kUnknown) {
    kind_ = is_recordable(program, results, c) ? kRecordable : kNotRecordable;
    return;
  }
  if (!is_at_hand()) {
    if (recordings_ == kMostRecordings) {
      kind_ = kNotRecordable;
      recording_.reset();
    } else {
      record(program, c);
    }
  }
  if (recording_ != nullptr) {
    replay(c);
  } else {
    program.run(results, c);
  }
}

}  // namespace ms_ext

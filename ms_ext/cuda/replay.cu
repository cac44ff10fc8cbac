#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/replay.h"
#include "programs/program.h"

namespace ms_ext {
namespace {

using at::cuda::CUDAGraph;
namespace allocator = c10::cuda::CUDACachingAllocator;

// A launch of fewer calls costs no more than that of a CUDA graph.
constexpr size_t kFewestCalls = 8;

// How many recordings a kernel has at most, each for other addresses.
constexpr size_t kMostRecordings = 8;

// If more would be needed, they are made anew, with a stand-in for what was at more addresses than this: first for what
// is anywhere, then for all that moves.
constexpr size_t kMostAddresses[] = {4, 1};

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

// Copies of tensors on one GPU.
class Copies {
 public:
  void add(const at::Tensor &to, const at::Tensor &from) {
    auto &[all_to, all_from] = by_dtype_[to.scalar_type()];
    all_to.push_back(to);
    all_from.push_back(from);
  }

  void make() const {
    for (const auto &[dtype, lists] : by_dtype_) {
      at::_foreach_copy_(lists.first, lists.second, /*non_blocking=*/true);
    }
  }

 private:
  // PyTorch has one launch for many tensors of one dtype, and one for each of several dtypes.
  std::map<c10::ScalarType, std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>> by_dtype_;
};

// The memory that cuBLAS works in. PyTorch has some for each thread and stream, and keeps it.
class Workspaces {
 public:
  using Map = decltype(at::cuda::WorkspaceMapWithMutex::map);
  using Key = Map::key_type;

  // That of this thread and a stream, which is current.
  static Key key(const c10::cuda::CUDAStream &stream) {
    return {at::cuda::getCurrentCUDABlasHandle(), stream.stream()};
  }

  static Map::node_type take(const Key &key) {
    at::cuda::WorkspaceMapWithMutex &all = at::cuda::cublas_handle_stream_to_workspace();
    const std::lock_guard<std::shared_mutex> lock(all.mutex);
    return all.map.extract(key);
  }

  static void give(Map::node_type own, const Key &key) {
    if (own.empty()) return;
    own.key() = key;
    at::cuda::WorkspaceMapWithMutex &all = at::cuda::cublas_handle_stream_to_workspace();
    const std::lock_guard<std::shared_mutex> lock(all.mutex);
    all.map.insert(std::move(own));
  }
};

// Where the programs of one stream are recorded. They run one after another, so they share memory, cuBLAS's too.
class Recorder {
 public:
  explicit Recorder(const c10::cuda::CUDAStream &launches) : launches_(launches) {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    record_nothing(keeper_);
  }

  // Records what a function launches. False if PyTorch refuses.
  bool record(CUDAGraph &graph, const std::function<void()> &launch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Workspaces::Key of_launches = Workspaces::key(launches_);
    Workspaces::take(of_launches);  // and free it: hardly anything will be launched call by call from now on
    const Workspaces::Key own(std::get<0>(of_launches), stream_.stream());
    Workspaces::Map::node_type others = Workspaces::take(own);  // PyTorch gives one stream to several who ask
    Workspaces::give(std::move(workspace_), own);
    const auto keep = c10::make_scope_exit([&] {
      workspace_ = Workspaces::take(own);
      Workspaces::give(std::move(others), own);
    });
    const c10::cuda::CUDAStreamGuard guard(stream_);
    try {
      begin(graph);
      launch();
      graph.capture_end();
      return true;
    } catch (const c10::Error &) {
      abandon(graph);
      return false;
    }
  }

 private:
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

  void record_nothing(CUDAGraph &graph) const {
    begin(graph);
    const at::Tensor something = at::zeros({1}, at::device(c10::kCUDA));  // PyTorch warns of an empty one
    graph.capture_end();
  }

  std::mutex mutex_;
  c10::cuda::CUDAStream launches_;
  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool();
  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  CUDAGraph keeper_;  // the memory stays as long as somebody uses it
  Workspaces::Map::node_type workspace_;
};

Recorder &recorder_of(const c10::cuda::CUDAStream &stream) {
  static std::mutex mutex;
  static auto *const recorders = new std::map<cudaStream_t, Recorder>;
  const std::lock_guard<std::mutex> lock(mutex);
  return recorders->try_emplace(stream.stream(), stream).first->second;
}

}  // namespace

Replay::Replay() = default;

Replay::~Replay() {
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) return;
  for (const auto &recording : recordings_) static_cast<void>(recording->graph.release());  // CUDA has ended before
}

// When other results are wanted than in the last launch.
void Replay::begin_anew(size_t results) {
  results_ = results;
  kind_ = kNew;
  recordings_.clear();
  forgotten_ = 0;
  has_stand_in_.clear();
}

// Without those of outputs that nobody wants.
Replay::Addresses Replay::addresses_of(const Call &c) const {
  Addresses addresses;
  for (size_t i = 0; i < c.inputs().size() + results_; ++i) addresses.push_back(c.at(i).const_data_ptr());
  return addresses;
}

bool Replay::Recording::is_of(const Addresses &others) const {
  return std::equal(addresses.begin(), addresses.end(), others.begin(), others.end(),
                    [](const void *own, const void *other) { return own == nullptr || own == other; });
}

void Replay::Recording::launch(Call &c) const {
  Copies to_recording, from_recording;
  for (const StandIn &stand_in : stand_ins) {
    const at::Tensor &own = c.at(stand_in.position);
    if (stand_in.position < c.inputs().size()) {
      to_recording.add(stand_in.tensor, own);
    } else {
      from_recording.add(own, stand_in.tensor);
    }
  }
  to_recording.make();
  graph->replay();
  from_recording.make();
}

// There would be too many. The next ones have more stand-ins.
void Replay::forget_recordings() {
  if (forgotten_ == std::size(kMostAddresses)) {
    kind_ = kNotRecordable;
  } else {
    const size_t most = kMostAddresses[forgotten_++];
    for (size_t i = 0; i < has_stand_in_.size(); ++i) {
      std::set<const void *> met;
      for (const auto &recording : recordings_) met.insert(recording->addresses[i]);
      has_stand_in_[i] = has_stand_in_[i] || met.size() > most;
    }
  }
  recordings_.clear();
}

// Null if PyTorch refuses.
std::unique_ptr<Replay::Recording> Replay::record(const Program &program, const Addresses &addresses, Call &c) const {
  auto recording = std::make_unique<Recording>();
  Recording &made = *recording;
  made.graph = std::make_unique<CUDAGraph>();
  made.addresses = addresses;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (!has_stand_in_[i] || program.writes_to(i)) continue;
    made.addresses[i] = nullptr;
    made.stand_ins.push_back({i, at::empty_like(c.at(i))});
  }
  const auto exchange = [&c, &made] {
    for (StandIn &stand_in : made.stand_ins) std::swap(c.at(stand_in.position), stand_in.tensor);
  };
  exchange();
  const auto restore = c10::make_scope_exit(exchange);
  Recorder &recorder = recorder_of(c10::cuda::getCurrentCUDAStream());
  const bool is_made = recorder.record(*made.graph, [&] { program.run(results_, c, /*is_recorded=*/true); });
  return is_made ? std::move(recording) : nullptr;
}

// The one for the addresses of this launch, made if there is none. Null if it cannot be made.
const Replay::Recording *Replay::recording_of(const Program &program, Call &c) {
  const Addresses addresses = addresses_of(c);
  const auto known = std::find_if(recordings_.begin(), recordings_.end(),
                                  [&](const auto &recording) { return recording->is_of(addresses); });
  if (known != recordings_.end()) return known->get();
  if (recordings_.size() == kMostRecordings) forget_recordings();
  if (kind_ == kNotRecordable) return nullptr;
  if (has_stand_in_.empty()) {
    allocator::emptyCache();  // of what launches call by call took
    has_stand_in_.resize(addresses.size());
  }
  auto made = record(program, addresses, c);
  if (made != nullptr) return recordings_.emplace_back(std::move(made)).get();
  kind_ = kNotRecordable;
  recordings_.clear();
  return nullptr;
}

void Replay::run(const Program &program, size_t results, Call &c) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (results != results_) begin_anew(results);
  if (kind_ == kNotRecordable || program.calls() < kFewestCalls || !program.is_pytorchs()) {
    program.run(results, c);
  } else if (kind_ == kNew) {  // PyTorch prepares what it keeps, and waits for that
    program.run(results, c);
    kind_ = kUnknown;
  } else if (kind_ == kUnknown) {
    kind_ = is_recordable(program, results, c) ? kRecordable : kNotRecordable;
  } else if (const Recording *recording = recording_of(program, c); recording != nullptr) {
    recording->launch(c);
  } else {
    program.run(results, c);
  }
}

}  // namespace ms_ext

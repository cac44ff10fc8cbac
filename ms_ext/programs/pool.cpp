#include "programs/pool.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>

#include <mutex>
#include <unordered_set>
#include <utility>

#include "donation.h"

namespace ms_ext {
namespace {

thread_local const Pool *pool = nullptr;

// What tensors have of the pool. Such a tensor may outlive its program, and be freed on any thread.
std::mutex used_mutex;
void (*release_memory)(void *data) = nullptr;
std::unordered_set<void *> &used() {
  static auto *const used = new std::unordered_set<void *>;
  return *used;
}

void release_tensor(void *data) { Pool::release(data); }

c10::DataPtr use(void *data) {
  const std::lock_guard<std::mutex> lock(used_mutex);
  used().insert(data);
  return {data, data, release_tensor, c10::Device(c10::kCPU)};
}

bool forget(void *data) {
  const std::lock_guard<std::mutex> lock(used_mutex);
  return used().erase(data) > 0;
}

// Whether a tensor is all of some memory of the pool, and nobody else has it.
bool owns_memory(const at::Tensor &tensor) {
  const c10::Storage &storage = tensor.storage();
  return tensor.use_count() == 1 && storage.use_count() == 1 && storage.data_ptr().get_deleter() == release_tensor &&
         tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() && tensor.storage_offset() == 0 &&
         storage.nbytes() == tensor.nbytes();
}

}  // namespace

Pool::Pool(const PoolMemory &memory) : memory_(memory), outer_(std::exchange(pool, this)) {
  use_offers_on_cpu();
  const std::lock_guard<std::mutex> lock(used_mutex);
  release_memory = memory.release;
}

Pool::~Pool() { pool = outer_; }

const Pool *Pool::current() { return pool; }

OutsidePool::OutsidePool() : left_(std::exchange(pool, nullptr)) {}

OutsidePool::~OutsidePool() { pool = left_; }

c10::DataPtr Pool::allocate(size_t size) const {
  if (size < kSmallestInPool) return {};
  void *const data = memory_.allocate(size);
  TORCH_CHECK(data != nullptr, "out of memory: MindSpore cannot allocate ", size, " bytes");
  return use(data);
}

bool Pool::release(void *data) {
  const bool found = forget(data);
  if (found) release_memory(data);
  return found;
}

at::Tensor Pool::input(size_t position, const at::Tensor &view) const {
  void *const data = view.nbytes() < kSmallestInPool ? nullptr : memory_.take_input(memory_.launch, position);
  if (data == nullptr) return view;
  const auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), view.nbytes(),
                                                             use(data), c10::GetCPUAllocator(), true);
  return at::empty({0}, view.options()).set_(storage, 0, view.sizes());
}

void Pool::give(size_t output, at::Tensor result) const {
  void *data;
  if (owns_memory(result)) {
    data = result.storage().mutable_data_ptr().release_context();
    forget(data);
  } else {
    data = memory_.allocate(result.nbytes());
    TORCH_CHECK(data != nullptr, "out of memory: MindSpore cannot allocate ", result.nbytes(), " bytes");
    at::from_blob(data, result.sizes(), result.options()).copy_(result);
  }
  memory_.give_output(memory_.launch, output, data);
}

}  // namespace ms_ext

extern "C" void *ms_ext_enter_pool(const ms_ext::PoolMemory *memory) { return new ms_ext::Pool(*memory); }

extern "C" void ms_ext_leave_pool(void *pool) { delete static_cast<ms_ext::Pool *>(pool); }

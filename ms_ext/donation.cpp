#include "donation.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>

#include "programs/pool.h"

namespace ms_ext {
namespace {

struct Offer {
  void *data;
  size_t size;
  c10::DeviceType device;
  size_t output;
  size_t turn;
  size_t seen = 0;  // allocations that it would fit

  bool fits(size_t other_size, c10::DeviceType other_device) const {
    return size == other_size && device == other_device;
  }
};

struct Allocation {
  size_t size;
  c10::DeviceType device;
  void *data;
};

// On CPU, small outputs are copied faster than they are offered; on a GPU a copy is a launch more.
constexpr size_t kSmallestOnCpu = 16384;

thread_local std::vector<Offer> offers;
thread_local std::vector<Allocation> allocations;  // those that an offer would fit, in order
thread_local std::vector<void *> taken;

// PyTorch's own CPU allocator, with the offers of the calling thread in front, and the pool of its program.
class OfferingAllocator final : public c10::Allocator {
 public:
  explicit OfferingAllocator(c10::Allocator *base) : base_(base) { instance_ = this; }

  c10::DataPtr allocate(size_t size) override {
    void *data = take_offer(size, c10::kCPU);
    if (data != nullptr) return {data, data, [](void *) {}, c10::Device(c10::kCPU)};
    c10::DataPtr own = Pool::current() == nullptr ? c10::DataPtr() : Pool::current()->allocate(size);
    if (!own) own = base_->allocate(size);
    note_allocation(size, c10::kCPU, own.get());
    return own;
  }

  c10::DeleterFnPtr raw_deleter() const override { return release; }

  void copy_data(void *to, const void *from, std::size_t size) const override { base_->copy_data(to, from, size); }

 private:
  static void release(void *data) {
    if (std::find(taken.begin(), taken.end(), data) != taken.end()) return;
    if (!Pool::release(data)) instance_->base_->raw_deleter()(data);
  }

  static OfferingAllocator *instance_;
  c10::Allocator *base_;
};

OfferingAllocator *OfferingAllocator::instance_ = nullptr;

}  // namespace

void use_offers_on_cpu() {
  static const bool installed = [] {
    c10::SetCPUAllocator(new OfferingAllocator(c10::GetCPUAllocator()), /*priority=*/1);
    return true;
  }();
  static_cast<void>(installed);
}

Turns::List Turns::get(size_t outputs) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return turns_.size() == outputs ? turns_ : List();
}

void Turns::set(List turns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  turns_ = std::move(turns);
}

void *take_offer(size_t size, c10::DeviceType device) {
  void *data = nullptr;
  for (Offer &offer : offers) {
    if (offer.fits(size, device) && offer.seen++ == offer.turn && data == nullptr) data = offer.data;
  }
  if (data != nullptr) {
    taken.push_back(data);
    note_allocation(size, device, data);
  }
  return data;
}

void note_allocation(size_t size, c10::DeviceType device, void *data) {
  const auto fits = [size, device](const Offer &offer) { return offer.fits(size, device); };
  if (std::any_of(offers.begin(), offers.end(), fits)) allocations.push_back({size, device, data});
}

Donation::Donation(at::ArrayRef<at::Tensor> outputs, Turns &turns) : turns_(turns), guess_(turns.get(outputs.size())) {
  const bool known = !guess_.empty();
  guess_.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor &output = outputs[i];
    const size_t size = output.nbytes();
    const c10::DeviceType device = output.device().type();
    if (size < (output.is_cpu() ? kSmallestOnCpu : 1) || output.const_data_ptr() == nullptr) continue;
    if (output.is_cpu()) use_offers_on_cpu();
    if (!known) {
      guess_[i] = static_cast<size_t>(std::count_if(
          offers.begin(), offers.end(), [size, device](const Offer &offer) { return offer.fits(size, device); }));
    }
    offers.push_back({output.mutable_data_ptr(), size, device, i, guess_[i]});
  }
}

void Donation::end(at::ArrayRef<at::Tensor> results) {
  bool wrong = false;
  for (const Offer &offer : offers) {
    if (offer.output >= results.size()) continue;
    const void *data = results[offer.output].const_data_ptr();
    if (data == offer.data) continue;
    size_t turn = 0;
    for (const Allocation &allocation : allocations) {
      if (!offer.fits(allocation.size, allocation.device)) continue;
      if (allocation.data == data) {  // the last one: memory that was freed is used again
        guess_[offer.output] = turn;
        wrong = true;
      }
      ++turn;
    }
  }
  if (wrong) turns_.set(guess_);
  offers.clear();
}

Donation::~Donation() {
  offers.clear();
  allocations.clear();
  taken.clear();
}

}  // namespace ms_ext

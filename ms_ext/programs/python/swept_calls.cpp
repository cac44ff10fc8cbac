#include "programs/python/swept_calls.h"

#include <ATen/ops/empty.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

namespace ms_ext::repeated {
namespace {

using Sizes = std::vector<int64_t>;

// Finds the calls that a sweep can make, asked for each part in turn.
class Finder {
 public:
  explicit Finder(const std::vector<Layout> &gradients) {
    for (size_t i = 0; i < gradients.size(); ++i)
      note(i, gradients[i].is_row_by_row() ? std::optional(gradients[i].sizes) : kNone);
  }

  std::optional<SweepableCall> sweepable(const OperatorCall &call) {
    std::optional<SweepableCall> found = find(call);
    for (const int64_t result : call.results()) {
      if (result >= 0) note(static_cast<size_t>(result), found ? std::optional(found->sizes) : kNone);
    }
    return found;
  }

 private:
  static constexpr std::nullopt_t kNone = std::nullopt;

  void note(size_t reg, std::optional<Sizes> sizes) { tensors_[reg] = std::move(sizes); }

  // Whether it is a number, or a tensor of PyTorch's that stands for one.
  bool is_number(const Operand &operand) const {
    if (operand.reg()) return tensors_.count(*operand.reg()) == 0;
    const IValue &value = operand.value();
    return value.isTensor() ? value.toTensor().unsafeGetTensorImpl()->is_wrapped_number() : value.isScalar();
  }

  // None if it is no tensor that a sweep can take.
  std::optional<Sizes> sizes_of(const Operand &operand) const {
    if (operand.reg()) {
      const auto found = tensors_.find(*operand.reg());
      return found == tensors_.end() ? kNone : found->second;
    }
    if (!operand.value().isTensor() || is_number(operand)) return kNone;
    const at::Tensor &tensor = operand.value().toTensor();
    return Layout(tensor).is_row_by_row() ? std::optional(tensor.sizes().vec()) : kNone;
  }

  std::optional<SweepableCall> find(const OperatorCall &call) const {
    std::vector<Operand> operands;
    for (const Argument &argument : call.arguments()) {
      if (argument.operand() == nullptr) return kNone;
      operands.push_back(*argument.operand());
    }
    const bool second_is_number = operands.size() > 1 && is_number(operands[1]);
    const auto kind = ElementWise::find(call.name().name, call.name().overload_name, second_is_number);
    if (!kind || call.results().size() > 1) return kNone;
    if (kind->one && (operands[*kind->one].reg() || operands[*kind->one].value().toScalar().toDouble() != 1))
      return kNone;
    const bool makes_result = !kind->result;
    const int64_t made = makes_result ? call.results().at(0) : -1;
    if (makes_result && made < 0) return kNone;
    SweepableCall found{kind->rows,
                        {operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(kind->tensors)},
                        kind->number ? operands[*kind->number] : Operand(0.0),
                        makes_result ? Operand(static_cast<size_t>(made)) : operands[*kind->result],
                        makes_result,
                        {}};
    const auto sizes = sizes_of(operands[0]);
    if (!sizes || (!makes_result && sizes_of(found.result) != sizes) || !is_number(found.number)) return kNone;
    for (const Operand &tensor : found.tensors) {
      if (sizes_of(tensor) != sizes) return kNone;
    }
    found.sizes = *sizes;
    return found;
  }

  std::map<size_t, std::optional<Sizes>> tensors_;  // by their registers: the sizes of those that a sweep can take
};

constexpr size_t kTensors = 16;  // of a sweep at most: their blocks have to fit into the cache

// The order of parts, and the calls that are swept.
class Order {
 public:
  struct Swept {
    std::vector<SweepableCall> calls;
    size_t begin;
  };

  void add(Part part, SweepableCall call) {
    const bool is_other = !open_.calls.empty() && open_.calls[0].sizes != call.sizes;
    if (is_other && is_counter(call)) {
      swept_.push_back({{std::move(call)}, parts_.size()});
      parts_.push_back(std::move(part));
      return;
    }
    if (is_other || tensors_.size() + call.tensors.size() >= kTensors) close();
    for (const Operand &tensor : call.tensors) tensors_.insert(tensor.key());
    tensors_.insert(call.result.key());
    open_parts_.push_back(std::move(part));
    open_.calls.push_back(std::move(call));
  }

  // Of a part that is not swept.
  void add(Part part) {
    const Read *const read = std::get_if<Read>(&part);
    if (std::holds_alternative<OperatorCall>(part) || (read != nullptr && knows(read->tensor()))) close();
    parts_.push_back(std::move(part));
  }

  // The parts in their new order, and what is swept of them.
  std::pair<std::vector<Part>, std::vector<Swept>> end() {
    close();
    return {std::move(parts_), std::move(swept_)};
  }

 private:
  bool knows(const Operand &tensor) const { return tensors_.count(tensor.key()) > 0; }

  // Whether all that it knows is a number in a memory of its own: then it may be counted before the open calls.
  bool is_counter(const SweepableCall &call) const {
    const auto is_own = [&](const Operand &tensor) {
      return !tensor.reg() && !knows(tensor) && tensor.value().toTensor().storage().nbytes() == sizeof(float);
    };
    return is_own(call.result) && std::all_of(call.tensors.begin(), call.tensors.end(), is_own);
  }

  void close() {
    if (!open_parts_.empty()) swept_.push_back({std::move(open_.calls), parts_.size()});
    std::move(open_parts_.begin(), open_parts_.end(), std::back_inserter(parts_));
    open_parts_.clear();
    open_.calls.clear();
    tensors_.clear();
  }

  std::vector<Part> parts_, open_parts_;
  std::vector<Swept> swept_;
  Swept open_;                      // the calls at the end, which more may join
  std::set<Operand::Key> tensors_;  // of these
};

}  // namespace

SweptCalls::SweptCalls(const std::vector<SweepableCall> &calls, size_t begin, const Uses &later)
    : begin_(begin), end_(begin + calls.size()), sizes_(calls[0].sizes) {
  std::map<Operand::Key, size_t> places;
  std::vector<Operand> own;
  for (const SweepableCall &call : calls) {
    if (!call.makes_result) continue;
    (later.count(*call.result.reg()) > 0 ? made_ : own).push_back(call.result);
    places[call.result.key()] = 0;
  }
  const auto note = [&](const Operand &tensor) {
    if (places.emplace(tensor.key(), 0).second) given_.push_back(tensor);
  };
  for (const SweepableCall &call : calls) {
    std::for_each(call.tensors.begin(), call.tensors.end(), note);
    note(call.result);
  }
  size_t place = 0;
  for (const auto *const tensors : {&given_, &made_, &own}) {
    for (const Operand &tensor : *tensors) places[tensor.key()] = place++;
  }
  sweep_ = Sweep(given_.size() + made_.size());
  for (const SweepableCall &call : calls) {
    Sweep::Call swept{call.rows, places[call.result.key()], {}, numbers_.size()};
    for (const Operand &tensor : call.tensors) swept.tensors.push_back(places[tensor.key()]);
    sweep_.add(std::move(swept));
    numbers_.push_back(call.number);
  }
}

bool SweptCalls::run(Registers *registers) const {
  std::vector<at::Tensor> tensors;
  tensors.reserve(given_.size() + made_.size());
  for (const Operand &tensor : given_) tensors.push_back(tensor.in(*registers).toTensor());
  if (tensors[0].sizes() != at::IntArrayRef(sizes_)) return false;
  for (size_t i = 0; i < made_.size(); ++i) tensors.push_back(at::empty(sizes_, at::kFloat));
  std::vector<float> numbers;
  numbers.reserve(numbers_.size());
  for (const Operand &number : numbers_) numbers.push_back(number.number_in(*registers));
  if (!sweep_.run(tensors, numbers)) return false;
  for (size_t i = 0; i < made_.size(); ++i) (*registers)[*made_[i].reg()] = tensors[given_.size() + i];
  return true;
}

std::vector<SweptCalls> bring_together(std::vector<Part> *parts, const std::vector<Layout> &gradients) {
  Finder finder(gradients);
  Order order;
  for (Part &part : *parts) {
    std::optional<SweepableCall> call;
    if (const auto *const known = std::get_if<OperatorCall>(&part)) call = finder.sweepable(*known);
    call ? order.add(std::move(part), *std::move(call)) : order.add(std::move(part));
  }
  auto [ordered, found] = order.end();
  *parts = std::move(ordered);
  std::vector<SweptCalls> swept;
  Uses later;
  size_t next = parts->size();
  for (auto one = found.rbegin(); one != found.rend(); ++one) {
    for (const size_t end = one->begin + one->calls.size(); next > end;) note_uses((*parts)[--next], &later);
    swept.emplace_back(one->calls, one->begin, later);
  }
  std::reverse(swept.begin(), swept.end());
  return swept;
}

}  // namespace ms_ext::repeated

#include "programs/python/swept_calls.h"

#include <ATen/ops/empty_like.h>
#include <pmmintrin.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "function_of.h"

namespace ms_ext::repeated {
namespace {

// The library that knows CUDA. It is loaded where a tensor of MindSpore's is on a GPU.
constexpr const char *kCuda = "libms_ext_cuda.so";

bool can_sweep(const SweepableCall &call, c10::Device device) {
  if (device.is_cpu()) return rows_of(call.operation) != nullptr;
  if (loaded(kCuda) == nullptr) return false;
  auto *const can = function_of<decltype(ms_ext_can_sweep_lists)>(kCuda, "ms_ext_can_sweep_lists");
  return can(call.operation, call.has_numbers, device.index());
}

std::shared_ptr<Sweep> sweep_of(const std::vector<SweptCall> &calls, size_t lists, c10::Device device) {
  if (device.is_cpu()) return sweep_on_cpu(calls, lists);
  auto *const sweep = function_of<decltype(ms_ext_list_sweep)>(kCuda, "ms_ext_list_sweep");
  return std::shared_ptr<Sweep>(sweep(calls, lists, device.index()));
}

// As PyTorch's kernels for float32 take it. An error as PyTorch's, where it is too large for those that PyTorch gives a
// number, and not a tensor in its place.
float as_float(double number, Operation operation, c10::Device device) {
  const bool is_tensor = device.is_cpu() && (operation == Operation::kAddNumber || operation == Operation::kMulNumber ||
                                             operation == Operation::kDivNumber);
  return is_tensor ? static_cast<float>(number) : c10::Scalar(number).toFloat();
}

// Whether PyTorch's kernel on a CPU has other bits than it had when it was compared: MKL does not take denormal numbers
// for zeros when the processor does, and the last elements, which do not fill a register, may have other signs of zero.
bool has_other_bits(Operation operation, double number, c10::Device device) {
  if (!device.is_cpu()) return false;
  return operation == Operation::kSqrt ? _MM_GET_DENORMALS_ZERO_MODE() == _MM_DENORMALS_ZERO_ON
                                       : operation == Operation::kLerp && number == 1;
}

using List = std::vector<Operand::Key>;  // of tensors

List keys_of(const Operands &operands) {
  List keys;
  for (const Operand &operand : operands) keys.push_back(operand.key());
  return keys;
}

// The lists of calls, none of which has a tensor of another one, or one twice.
class Lists {
 public:
  bool has(const Operand::Key &tensor) const { return tensors_.count(tensor) > 0; }
  size_t size() const { return lists_.size(); }

  // False if it has a tensor of another list, or one twice.
  bool add(const Operands &operands) {
    List list = keys_of(operands);
    if (lists_.count(list) > 0) return true;
    for (const Operand::Key &tensor : list) {
      if (!tensors_.insert(tensor).second) return false;
    }
    lists_.insert(std::move(list));
    return true;
  }

  bool add(const SweepableCall &call) {
    return std::all_of(call.tensors.begin(), call.tensors.end(), [this](const Operands &list) { return add(list); }) &&
           add(call.result);
  }

 private:
  std::set<List> lists_;
  std::set<Operand::Key> tensors_;
};

// Finds the calls that a sweep can make, asked for each part in turn.
class Finder {
 public:
  explicit Finder(const std::vector<at::Tensor> &gradients) {
    for (size_t i = 0; i < gradients.size(); ++i) tensors_.emplace(i, Elements::of(gradients[i]));
  }

  std::optional<SweepableCall> sweepable(const OperatorCall &call) {
    std::optional<SweepableCall> found = find(call);
    for (size_t i = 0; i < call.results().size(); ++i) {
      const int64_t result = call.results()[i];
      if (result >= 0) tensors_[static_cast<size_t>(result)] = found ? std::optional(found->items[i]) : std::nullopt;
    }
    return found;
  }

 private:
  // Whether it is a number, or a tensor of PyTorch's that stands for one.
  bool is_number(const Operand &operand) const {
    if (operand.reg()) return tensors_.count(*operand.reg()) == 0;
    const IValue &value = operand.value();
    return value.isTensor() ? value.toTensor().unsafeGetTensorImpl()->is_wrapped_number() : value.isScalar();
  }

  static bool is_number_on_host(const Operand &operand) {
    if (operand.reg() || !operand.value().isTensor()) return false;
    const at::Tensor &tensor = operand.value().toTensor();
    return tensor.dim() == 0 && tensor.is_cpu() && tensor.scalar_type() == at::kFloat;
  }

  // None if it is no tensor that a sweep can take.
  std::optional<Elements> elements_of(const Operand &operand) const {
    if (operand.reg()) {
      const auto found = tensors_.find(*operand.reg());
      return found == tensors_.end() ? std::nullopt : found->second;
    }
    if (!operand.value().isTensor() || is_number(operand)) return std::nullopt;
    return Elements::of(operand.value().toTensor());
  }

  std::optional<SweepableCall> find(const OperatorCall &call) const {
    const std::vector<Argument> &arguments = call.arguments();
    if (arguments.empty()) return {};
    const bool of_lists = arguments[0].is_list();
    const auto are_numbers = [&](const Argument &argument) {
      const Operands operands = argument.operands();
      const bool for_all = of_lists && !argument.is_list();
      return std::all_of(operands.begin(), operands.end(), [&](const Operand &operand) {
        return is_number(operand) || (for_all && is_number_on_host(operand));
      });
    };
    const bool second_is_number = arguments.size() > 1 && are_numbers(arguments[1]);
    const auto kind = ElementWise::find(call.name().name, call.name().overload_name, second_is_number);
    if (!kind) return {};
    if (kind->one) {
      const Operand one = arguments[*kind->one].operands().at(0);
      if (one.reg() || one.value().toScalar().toDouble() != 1) return {};
    }
    SweepableCall found{kind->operation, {}, false, {Operand(IValue(0.0))}, {}, !kind->result, {}};
    for (size_t i = 0; i < kind->tensors; ++i) found.tensors.push_back(arguments[i].operands());
    if (kind->number) {
      if (!are_numbers(arguments[*kind->number])) return {};
      found.has_numbers = arguments[*kind->number].is_list();
      found.numbers = arguments[*kind->number].operands();
    }
    if (kind->result) {
      found.result = arguments[*kind->result].operands();
    } else {
      for (const int64_t result : call.results()) {
        if (result < 0) return {};
        found.result.emplace_back(static_cast<size_t>(result));
      }
    }
    return can_be_swept(&found, of_lists) ? std::optional(std::move(found)) : std::nullopt;
  }

  // Finds its items, which lie alike in all lists. On a GPU, PyTorch has other kernels for lists than for tensors.
  bool can_be_swept(SweepableCall *call, bool of_lists) const {
    const size_t count = call->tensors[0].size();
    for (const Operand &tensor : call->tensors[0]) {
      const auto elements = elements_of(tensor);
      if (!elements || (!call->items.empty() && elements->device() != call->items[0].device())) return false;
      call->items.push_back(*elements);
    }
    if (count == 0 || !(of_lists || call->items[0].device().is_cpu())) return false;
    if (!can_sweep(*call, call->items[0].device())) return false;
    const auto are_alike = [&](const Operands &list) {
      return std::equal(list.begin(), list.end(), call->items.begin(), call->items.end(),
                        [this](const Operand &tensor, const Elements &item) { return elements_of(tensor) == item; });
    };
    return (call->numbers.size() == (call->has_numbers ? count : 1)) &&
           std::all_of(call->tensors.begin(), call->tensors.end(), are_alike) &&
           (call->makes_result ? call->result.size() == count : are_alike(call->result)) && Lists().add(*call);
  }

  std::map<size_t, std::optional<Elements>> tensors_;  // by their registers; none of those that a sweep cannot take
};

// Of a sweep at most. On a CPU the blocks of its lists have to fit into the cache, on a GPU its numbers into a launch.
constexpr size_t kLists = 16;
constexpr size_t kCalls = 32;

// The order of parts, and the calls that are swept. What is read and counted may come before calls that are swept, and
// what is counted is what is read: an optimizer's steps, each of which is a number in a memory of its own.
class Order {
 public:
  explicit Order(const std::vector<Part> &parts) {
    for (const Part &part : parts) {
      if (const Read *const read = std::get_if<Read>(&part)) read_.insert(read->tensor().key());
    }
  }

  struct Swept {
    std::vector<SweepableCall> calls;
    size_t begin;
  };

  void add(Part part, SweepableCall call) {
    const bool is_other = !open_.calls.empty() && open_.calls[0].items != call.items;
    if (is_other && is_counter(call)) {
      swept_.push_back({{std::move(call)}, parts_.size()});
      parts_.push_back(std::move(part));
      return;
    }
    if (is_other || lists_.size() + call.tensors.size() >= kLists || open_.calls.size() == kCalls ||
        follows(call.numbers)) {
      close();
    }
    if (!lists_.add(call)) {
      close();
      lists_.add(call);
    }
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
  bool knows(const Operand &tensor) const { return lists_.has(tensor.key()); }

  // Whether one of the numbers is in a tensor of the open calls.
  bool follows(const Operands &numbers) const {
    return std::any_of(numbers.begin(), numbers.end(), [this](const Operand &number) {
      return !number.reg() && number.value().isTensor() && knows(number);
    });
  }

  bool is_counter(const SweepableCall &call) const {
    const auto is_own = [&](const Operand &tensor) {
      return !tensor.reg() && !knows(tensor) && read_.count(tensor.key()) > 0 &&
             tensor.value().toTensor().storage().nbytes() == sizeof(float);
    };
    const auto are_own = [&](const Operands &list) { return std::all_of(list.begin(), list.end(), is_own); };
    return are_own(call.result) && std::all_of(call.tensors.begin(), call.tensors.end(), are_own) &&
           !follows(call.numbers);
  }

  void close() {
    if (!open_parts_.empty()) swept_.push_back({std::move(open_.calls), parts_.size()});
    std::move(open_parts_.begin(), open_parts_.end(), std::back_inserter(parts_));
    open_parts_.clear();
    open_.calls.clear();
    lists_ = {};
  }

  std::set<Operand::Key> read_;
  std::vector<Part> parts_, open_parts_;
  std::vector<Swept> swept_;
  Swept open_;   // the calls at the end, which more may join
  Lists lists_;  // of these
};

// Whether its memory has its numbers.
bool is_plain(const at::Tensor &tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat &&
         !tensor.is_neg() && !tensor._is_zerotensor() && !tensor.is_inference();
}

}  // namespace

Elements::Elements(const at::Tensor &tensor)
    : sizes_(tensor.sizes().vec()), strides_(tensor.strides().vec()), device_(tensor.device()), count_(tensor.numel()) {
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (sizes_[i] == 1) strides_[i] = 1;
  }
}

std::optional<Elements> Elements::of(const at::Tensor &tensor) {
  if (!is_plain(tensor)) return {};
  const bool can = tensor.is_cpu() ? tensor.is_contiguous() : tensor.is_cuda() && tensor.is_non_overlapping_and_dense();
  return can ? std::optional(Elements(tensor)) : std::nullopt;
}

bool Elements::are_those_of(const at::Tensor &tensor) const {
  if (!is_plain(tensor) || tensor.device() != device_ || tensor.sizes() != sizes_) return false;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (sizes_[i] != 1 && tensor.strides()[i] != strides_[i]) return false;
  }
  return true;
}

SweptCalls::SweptCalls(const std::vector<SweepableCall> &calls, size_t begin, const Uses &later)
    : begin_(begin), end_(begin + calls.size()), items_(calls[0].items) {
  std::map<List, size_t> places;
  std::vector<Operands> own;
  for (const SweepableCall &call : calls) {
    if (!call.makes_result) continue;
    const bool is_used = std::any_of(call.result.begin(), call.result.end(),
                                     [&](const Operand &result) { return later.count(*result.reg()) > 0; });
    (is_used ? made_ : own).push_back(call.result);
    places[keys_of(call.result)] = 0;
  }
  const auto note = [&](const Operands &list) {
    if (places.emplace(keys_of(list), 0).second) given_.push_back(list);
  };
  for (const SweepableCall &call : calls) {
    std::for_each(call.tensors.begin(), call.tensors.end(), note);
    note(call.result);
  }
  size_t place = 0;
  for (const auto *const lists : {&given_, &made_, &own}) {
    for (const Operands &list : *lists) places[keys_of(list)] = place++;
  }
  const size_t count = given_.size() + made_.size();
  is_written_.resize(count);
  std::vector<SweptCall> swept;
  for (const SweepableCall &call : calls) {
    SweptCall &own_call =
        swept.emplace_back(SweptCall{call.operation, call.has_numbers, places[keys_of(call.result)], {}});
    for (const Operands &list : call.tensors) own_call.tensors.push_back(places[keys_of(list)]);
    if (own_call.result < count) is_written_[own_call.result] = true;
    numbers_.push_back({call.operation, call.numbers});
  }
  sweep_ = sweep_of(swept, count, items_[0].device());
}

bool SweptCalls::find_tensors(const Registers &registers, TensorLists *lists) const {
  for (const Operands &operands : given_) {
    std::vector<at::Tensor> &list = lists->emplace_back();
    list.reserve(items_.size());
    for (const Operand &tensor : operands) {
      list.push_back(tensor.in(registers).toTensor());
      if (!items_[list.size() - 1].are_those_of(list.back())) return false;
    }
  }
  return true;
}

bool SweptCalls::are_apart(const TensorLists &lists) const {
  std::vector<const void *> memory;
  memory.reserve(lists.size() * items_.size());
  for (const auto &list : lists) {
    for (const at::Tensor &tensor : list) memory.push_back(tensor.const_data_ptr());
  }
  if (memory == known_apart_) return true;
  struct Range {
    const char *begin, *end;
    bool is_written;
  };
  std::vector<Range> ranges;
  ranges.reserve(memory.size());
  for (size_t i = 0; i < memory.size(); ++i) {
    const auto *const at = static_cast<const char *>(memory[i]);
    const int64_t bytes = items_[i % items_.size()].count() * static_cast<int64_t>(sizeof(float));
    if (bytes > 0) ranges.push_back({at, at + bytes, is_written_[i / items_.size()]});
  }
  const std::less<> is_before;  // of any two pointers
  std::sort(ranges.begin(), ranges.end(),
            [&](const Range &left, const Range &right) { return is_before(left.begin, right.begin); });
  const char *end = nullptr, *written_end = nullptr;  // of those before
  for (const Range &range : ranges) {
    if (is_before(range.begin, written_end) || (range.is_written && is_before(range.begin, end))) return false;
    end = std::max(end, range.end, is_before);
    if (range.is_written) written_end = std::max(written_end, range.end, is_before);
  }
  known_apart_ = std::move(memory);
  return true;
}

bool SweptCalls::find_numbers(const Registers &registers, std::vector<std::vector<float>> *numbers) const {
  const c10::Device device = items_[0].device();
  for (const auto &[operation, operands] : numbers_) {
    std::vector<float> &found = numbers->emplace_back();
    found.reserve(operands.size());
    for (const Operand &operand : operands) {
      const double number = operand.number_in(registers);
      if (has_other_bits(operation, number, device)) return false;
      found.push_back(as_float(number, operation, device));
    }
  }
  return true;
}

bool SweptCalls::run(Registers *registers) const {
  TensorLists lists;
  lists.reserve(given_.size() + made_.size());
  std::vector<std::vector<float>> numbers;
  numbers.reserve(numbers_.size());
  if (!find_tensors(*registers, &lists) || !are_apart(lists) || !find_numbers(*registers, &numbers)) return false;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (!is_written_[i]) continue;
    for (const at::Tensor &tensor : lists[i]) tensor.unsafeGetTensorImpl()->bump_version();
  }
  for (const Operands &results : made_) {
    std::vector<at::Tensor> list;
    for (const at::Tensor &tensor : lists[0]) list.push_back(at::empty_like(tensor));
    for (size_t i = 0; i < results.size(); ++i) (*registers)[*results[i].reg()] = list[i];
    lists.push_back(std::move(list));
  }
  sweep_->run(lists, numbers);
  return true;
}

std::vector<SweptCalls> bring_together(std::vector<Part> *parts, const std::vector<at::Tensor> &gradients) {
  Finder finder(gradients);
  Order order(*parts);
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

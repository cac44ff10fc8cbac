#include "programs/program.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include "errors.h"
#include "ms_ext.h"
#include "programs/pool.h"

namespace ms_ext {
namespace {

template <typename T>
T take(Arguments &args) {
  T value{};
  args >> value;
  return value;
}

using Ints = std::vector<int64_t>;

std::string read_file(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("its program is gone: there is no " + path + "; start the process again");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What says of an argument how the program gives it.
enum Given : char { kDefault = '0', kGiven = '1', kHere = 'h', kOnCpu = 'c', kNumber = 'n' };

Boxed take_argument(Arguments &args, const c10::Argument &argument, char given) {
  Boxed boxed;
  if (given == kGiven) {
    boxed = take_boxed(args, argument);
    boxed.is_state = boxed.is_written = false;  // it is written to in its place
  } else if (given == kNumber) {
    boxed.kind = Boxed::kNumber;
    boxed.is_wrapped = argument.type()->kind() == c10::TypeKind::TensorType;
    args >> boxed.tensors.emplace_back();
  } else if (given == kHere) {
    boxed.kind = Boxed::kDevice;
  } else if (given == kOnCpu) {
    boxed.value = c10::Device(c10::kCPU);
  } else if (argument.default_value()) {
    boxed.value = *argument.default_value();
  } else {  // None: PyTorch's own generator
    TORCH_CHECK(argument.name() == "generator", "the argument '", argument.name(),
                "' of the program's call has no default");
  }
  return boxed;
}

Place take_place(Arguments &args) {
  Place place;
  const auto sizes = take<Ints>(args), strides = take<Ints>(args);
  place.sizes.assign(sizes.begin(), sizes.end());
  place.strides.assign(strides.begin(), strides.end());
  args >> place.offset;
  return place;
}

// All of a tensor's memory as one row of its elements.
at::Tensor row_of(const at::Tensor &tensor, int64_t elements) {
  at::Tensor row =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  row.unsafeGetTensorImpl()->set_sizes_contiguous({elements});
  return row;
}

}  // namespace

std::shared_ptr<const Program> Program::load(const std::string &path) {
  static std::mutex mutex;
  static auto *const loaded = new std::unordered_map<std::string, std::weak_ptr<const Program>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<const Program> &known = (*loaded)[path];
  std::shared_ptr<const Program> program = known.lock();
  if (program == nullptr) known = program = read(path);
  return program;
}

std::shared_ptr<const Program> Program::read(const std::string &path) {
  return std::make_shared<const Program>(Arguments(read_file(path)));
}

Program::Program(Arguments args)
    : inputs_(static_cast<size_t>(take<int64_t>(args))), registers_(static_cast<size_t>(take<int64_t>(args))) {
  for (size_t n = args.list_size(); n > 0; --n) given_constants_.emplace_back(args);
  for (size_t n = args.list_size(); n > 0; --n) steps_.emplace_back(args);
  for (size_t n = args.list_size(); n > 0; --n) {
    Output output;
    args >> output.sizes >> output.is_memory;
    for (size_t layouts = args.list_size(); layouts > 0; --layouts) {
      const auto reg = static_cast<int>(take<int64_t>(args));
      output.layouts.push_back({reg, take_place(args)});
    }
    outputs_.push_back(std::move(output));
  }
  // The tensors of all calls are numbered through; which registers they are comes last.
  const auto operands = take<Ints>(args);
  for (Step &step : steps_) {
    for (Boxed &argument : step.arguments) {
      for (auto &tensor : argument.tensors) {
        if (tensor && tensor->index >= 0) tensor->index = static_cast<int>(operands.at(tensor->index));
      }
    }
  }
  std::vector<std::string> lines;
  for (size_t n = args.list_size(); n > 0; --n) lines.push_back(take<std::string>(args));
  const auto line_of = take<Ints>(args);
  for (size_t i = 0; i < steps_.size(); ++i) steps_[i].line = lines.at(static_cast<size_t>(line_of.at(i)));
  written_ = written();
  is_pytorchs_ = std::all_of(steps_.begin(), steps_.end(),
                             [](const Step &step) { return step.op.schema().name().rfind("aten::", 0) == 0; });
}

// The inputs that calls write to. A view's memory is that of the arguments that may be in its call's results.
std::vector<bool> Program::written() const {
  std::vector<bool> found(inputs_);
  std::vector<std::vector<size_t>> inputs_of(registers_);  // in whose memory each register may lie
  for (size_t i = 0; i < inputs_; ++i) inputs_of[i] = {i};
  for (const Step &step : steps_) {
    const auto &schema = step.op.schema().arguments();
    std::vector<size_t> shared;
    for (size_t i = 0; i < schema.size(); ++i) {
      const bool is_written = ms_ext::is_written(schema[i]) || schema[i].name().rfind("running_", 0) == 0;
      if (!is_written && schema[i].alias_info() == nullptr) continue;
      for (const auto &tensor : step.arguments[i].tensors) {
        if (!tensor || tensor->index < 0) continue;
        for (const size_t input : inputs_of[static_cast<size_t>(tensor->index)]) {
          found[input] = found[input] || is_written;
          shared.push_back(input);
        }
      }
    }
    for (const int64_t result : step.results) {
      if (result >= 0) inputs_of[static_cast<size_t>(result)] = shared;
    }
  }
  return found;
}

Program::Constant::Constant(Arguments &args) {
  const auto dtype = take<c10::ScalarType>(args);
  tensor = at::empty(take<Ints>(args), dtype);
  on_host = take<bool>(args);
  const auto bytes = take<std::string>(args);
  TORCH_CHECK(bytes.size() == tensor.nbytes(), "a constant of the program has ", bytes.size(), " bytes");
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
}

const Program::Constants &Program::constants_on(Call &c) const {
  const std::lock_guard<std::mutex> lock(constants_mutex_);
  const auto known = constants_.find(c.device());
  return known != constants_.end() ? known->second : constants_.emplace(c.device(), make_constants(c)).first->second;
}

Program::Constants Program::make_constants(Call &c) const {
  const OutsidePool outside;
  Workspace space;
  Registers &registers = space.registers;
  registers.resize(registers_);
  for (size_t i = 0; i < given_constants_.size(); ++i) {
    const auto &[tensor, on_host] = given_constants_[i];
    registers[inputs_ + i] = on_host ? tensor : tensor.to(c.device());
  }
  for (const Step &step : steps_) {
    if (step.is_constant) run_step(step, space, c, /*is_recorded=*/false);
  }
  if (!c.device().is_cpu()) {  // launches on other streams take them
    c10::impl::VirtualGuardImpl(c.device().type()).getStream(c.device()).synchronize();
  }
  Constants constants;
  for (size_t i = inputs_; i < registers_; ++i) {
    if (registers[i].defined()) constants.emplace_back(i, std::move(registers[i]));
  }
  return constants;
}

Program::Step::Step(Arguments &args)
    : op(find_operator(take<std::string>(args))), is_constant(take<bool>(args)), is_without_gradient(take<bool>(args)) {
  const auto given = take<std::string>(args);
  const auto &schema = op.schema().arguments();
  TORCH_CHECK(given.size() == schema.size(), "PyTorch has changed the arguments of ", op.schema().name());
  for (size_t i = 0; i < schema.size(); ++i) arguments.push_back(take_argument(args, schema[i], given[i]));
  has_number = std::any_of(arguments.begin(), arguments.end(),
                           [](const Boxed &argument) { return argument.kind == Boxed::kNumber; });
  args >> results >> last >> donated >> outputs;
  if (KnownViews::are_results_of(op.schema(), arguments)) views = std::make_unique<KnownViews>();
  const std::string &name = op.schema().name();
  is_check = name == "aten::_assert_async";
  if (name.find("_efficient_attention") == std::string::npos) return;
  is_attention = true;
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() == "dropout_p" && arguments[i].value.toDouble() == 0) return;
  }
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name().rfind("philox_", 0) == 0) on_host.push_back(i);
  }
}

void Program::take_results(torch::jit::Stack &stack, Registers &results) {
  results.clear();
  for (c10::IValue &value : stack) {
    if (value.isTensor()) {
      results.push_back(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor &tensor : value.toTensorList()) results.push_back(tensor);
    } else if (value.isNone()) {
      results.emplace_back();
    }
  }
  stack.clear();
}

size_t Program::reads_in_calls() const {
  size_t reads = 0;
  for (const Step &step : steps_) reads += step.on_host.size();
  return reads;
}

// On a GPU, of a call that is not recorded: its arguments that have to be on the host.
void Program::bring_to_host(const Step &step, torch::jit::Stack &stack) {
  for (const size_t i : step.on_host) stack[i] = stack[i].toTensor().cpu();
  if (step.is_check) stack[0] = stack[0].toTensor().cpu();  // a check that fails there would end the process
}

void Program::make_call(const Step &step, Workspace &space, Call &c, bool is_recorded) {
  auto &[registers, results, stack] = space;
  if (step.views != nullptr && step.views->make(step.arguments[0].tensor(registers), &results)) return;
  for (const Boxed &argument : step.arguments) stack.push_back(argument.fill(registers, c.device()));
  if (!is_recorded && !c.device().is_cpu()) bring_to_host(step, stack);
  if (step.donated.empty()) {
    step.op.callBoxed(stack);
    take_results(stack, results);
  } else {
    Registers outputs, given;
    for (const int64_t output : step.outputs) outputs.push_back(c.out(static_cast<size_t>(output)));
    Donation donation(outputs, step.turns);
    step.op.callBoxed(stack);
    take_results(stack, results);
    for (const int64_t result : step.donated) given.push_back(results.at(static_cast<size_t>(result)));
    donation.end(given);
  }
  if (step.views != nullptr) step.views->note(step.arguments[0].tensor(registers), results);
}

bool Program::run_step(const Step &step, Workspace &space, Call &c, bool is_recorded) {
  try {
    return make_step(step, space, c, is_recorded);
  } catch (const c10::Error &error) {
    if (step.is_check) throw error_of(error.what_without_backtrace());  // it has a line
    throw Error(error.what_without_backtrace() + step.line, as_in_python(error).python_class);
  }
}

bool Program::make_step(const Step &step, Workspace &space, Call &c, bool is_recorded) {
  {
    const c10::AutoGradMode mode(!step.is_without_gradient && c10::GradMode::is_enabled());
    make_call(step, space, c, is_recorded);
  }
  auto &[registers, results, stack] = space;
  TORCH_CHECK(results.size() == step.results.size(), step.op.schema().name(), " gave ", results.size(),
              " results, but ", step.results.size(), " when it was captured");
  bool stayed = !step.has_number;
  for (at::Tensor &result : results) {
    if (!result.defined() || result.device() == c.device()) continue;
    if (step.is_attention) {
      result = result.to(c.device(), result.scalar_type(), /*non_blocking=*/true);
    } else {
      stayed = false;
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (step.results[i] >= 0) registers[static_cast<size_t>(step.results[i])] = std::move(results[i]);
  }
  results.clear();
  for (const int64_t last : step.last) registers[static_cast<size_t>(last)].reset();
  return stayed;
}

// Where kernels laid tensors out as when the program was captured, this is the memory itself.
at::Tensor Program::memory_of(const Output &output, const Registers &registers, const at::Tensor &like) {
  bool as_captured = true;
  for (const Layout &layout : output.layouts) {
    const at::Tensor &tensor = registers[static_cast<size_t>(layout.reg)];
    as_captured = as_captured && layout.place.is_of(tensor) &&
                  tensor.is_alias_of(registers[static_cast<size_t>(output.layouts[0].reg)]);
  }
  const at::Tensor &first = registers[static_cast<size_t>(output.layouts[0].reg)];
  const bool whole = first.storage().nbytes() == like.nbytes() && !first.is_conj() && !first.is_neg();
  if (as_captured && whole) return row_of(first, like.numel());
  at::Tensor row = at::empty(like.sizes(), like.options());
  for (const Layout &layout : output.layouts) {
    const Place &place = layout.place;
    row.as_strided(place.sizes, place.strides, place.offset).copy_(registers[static_cast<size_t>(layout.reg)]);
  }
  return row;
}

Shapes Program::shapes() const {
  Shapes shapes;
  for (const Output &output : outputs_) shapes.push_back(output.sizes);
  return shapes;
}

// The first results, which bring their memory.
void Program::give(const Pool &pool, size_t count, Registers &results, Call &c) {
  c.check(results);
  for (size_t i = 0; i < count; ++i) {
    if (results[i].numel() == 0 || c.out(i).const_data_ptr() != nullptr) continue;
    pool.give(i, std::move(results[i]));
    results[i] = c.out(i);
  }
}

Program::Freed Program::find_freed_for(size_t results) const {
  std::set<size_t> left;
  for (size_t i = results; i < outputs_.size(); ++i) {
    for (const Layout &layout : outputs_[i].layouts) left.insert(static_cast<size_t>(layout.reg));
  }
  for (size_t i = 0; i < results; ++i) {
    for (const Layout &layout : outputs_[i].layouts) left.erase(static_cast<size_t>(layout.reg));
  }
  Freed freed(steps_.size());
  const auto note = [&](size_t step, int64_t reg) {
    if (reg >= 0 && left.erase(static_cast<size_t>(reg)) > 0) freed[step].push_back(static_cast<size_t>(reg));
  };
  for (size_t i = steps_.size(); i-- > 0;) {
    for (const Boxed &argument : steps_[i].arguments) {
      for (const auto &tensor : argument.tensors) {
        if (tensor) note(i, tensor->index);
      }
    }
    for (const int64_t result : steps_[i].results) note(i, result);
  }
  return freed;
}

const Program::Freed *Program::freed_for(size_t results) const {
  if (results == outputs_.size()) return nullptr;
  const std::lock_guard<std::mutex> lock(freed_mutex_);
  const auto known = freed_.find(results);
  return known != freed_.end() ? &known->second : &(freed_[results] = find_freed_for(results));
}

bool Program::run(size_t count, Call &c, bool is_recorded) const {
  const Freed *const freed = freed_for(count);
  const Pool *const pool = Pool::current();
  Workspace space;
  Registers &registers = space.registers;
  registers.resize(registers_);
  for (size_t i = 0; i < inputs_; ++i) registers[i] = pool == nullptr ? c.inputs()[i] : pool->input(i, c.inputs()[i]);
  for (const auto &[reg, tensor] : constants_on(c)) registers[reg] = tensor;
  bool stayed = true;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].is_constant) continue;
    stayed = run_step(steps_[i], space, c, is_recorded) && stayed;
    if (freed == nullptr) continue;
    for (const size_t reg : (*freed)[i]) registers[reg].reset();
  }
  Registers results;
  for (size_t i = 0; i < count; ++i) {
    const Output &output = outputs_[i];
    results.push_back(output.is_memory ? memory_of(output, registers, c.out(i))
                                       : registers[static_cast<size_t>(output.layouts[0].reg)]);
    if (results.back().dim() == 0) results.back() = results.back().unsqueeze(0);  // as MindSpore has it
  }
  registers.clear();
  for (size_t i = count; i < outputs_.size(); ++i) results.push_back(c.out(i));
  if (pool != nullptr) give(*pool, count, results, c);
  c.place(std::move(results));
  return stayed;
}

}  // namespace ms_ext

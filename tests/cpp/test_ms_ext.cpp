// Unit tests of ms_ext that need no MindSpore. tests/test_cpp.py compiles them under ASAN and UBSAN and runs them.
#include <ATen/Context.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.h"
#include "cuda/virtual_table.h"
#include "donation.h"
#include "ms_ext.h"
#include "programs/pool.h"

namespace {

using ms_ext::Arguments;

int failures = 0;

#define EXPECT(condition)                                                   \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                           \
    }                                                                       \
  } while (false)

// Whether `action` throws an exception whose message holds `words`.
bool throws(const std::function<void()> &action, const std::string &words) {
  try {
    action();
  } catch (const std::exception &error) {
    if (std::string(error.what()).find(words) != std::string::npos) return true;
    std::printf("the message \"%s\" lacks \"%s\"\n", error.what(), words.c_str());
  }
  return false;
}

template <typename T>
T read(const std::string &text) {
  Arguments arguments(text);
  T value;
  arguments >> value;
  EXPECT(arguments.at_end());
  return value;
}

uint64_t bits(double value) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof word);
  return word;
}

std::string hex(uint64_t word) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(word));
  return text;
}

// What MindSpore passes for some tensors.
struct Parameters {
  std::vector<void *> data;
  std::vector<int> ndims;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t *> shape_pointers;
  std::vector<const char *> dtypes;

  void add(void *pointer, std::vector<int64_t> shape, const char *dtype) {
    data.push_back(pointer);
    ndims.push_back(static_cast<int>(shape.size()));
    shapes.push_back(std::move(shape));
    dtypes.push_back(dtype);
  }

  std::vector<at::Tensor> tensors(int count) {
    shape_pointers.clear();
    for (auto &shape : shapes) shape_pointers.push_back(shape.data());
    return get_torch_tensors(count, data.data(), ndims.data(), shape_pointers.data(), dtypes.data(), c10::kCPU);
  }
  std::vector<at::Tensor> tensors() { return tensors(static_cast<int>(data.size())); }
};

void every_dtype_name_has_its_type() {
  const std::pair<const char *, c10::ScalarType> names[] = {
      {"bool", c10::kBool},
      {"int8", c10::kChar},
      {"int16", c10::kShort},
      {"int32", c10::kInt},
      {"int", c10::kInt},
      {"int64", c10::kLong},
      {"uint8", c10::kByte},
      {"uint16", c10::kUInt16},
      {"uint32", c10::kUInt32},
      {"uint", c10::kUInt32},
      {"uint64", c10::kUInt64},
      {"float16", c10::kHalf},
      {"bfloat16", c10::kBFloat16},
      {"float32", c10::kFloat},
      {"float", c10::kFloat},
      {"float64", c10::kDouble},
      {"complex64", c10::kComplexFloat},
      {"complex128", c10::kComplexDouble},
      {"float8_e4m3fn", c10::kFloat8_e4m3fn},
      {"float8_e5m2", c10::kFloat8_e5m2},
  };
  alignas(16) char memory[32] = {};
  for (const auto &[name, type] : names) {
    Parameters parameters;
    parameters.add(memory, {2}, name);
    const auto tensors = parameters.tensors();
    EXPECT(tensors.at(0).scalar_type() == type);
    EXPECT(tensors.at(0).nbytes() == 2 * c10::elementSize(type));
  }
}

void unknown_dtype_names_itself() {
  for (const char *name : {"int4", "hifloat8", "string", "", "Float32", "float32 ", "float3"}) {
    Parameters parameters;
    parameters.add(nullptr, {0}, name);
    EXPECT(throws([&] { parameters.tensors(); }, "'" + std::string(name) + "'"));
  }
}

void views_share_the_memory() {
  float in[] = {1, 2, 3, 4, 5, 6};
  float out[6] = {};
  Parameters parameters;
  parameters.add(in, {2, 3}, "float32");
  parameters.add(out, {2, 3}, "float32");
  {
    auto tensors = parameters.tensors();
    EXPECT(tensors.size() == 2);
    EXPECT(tensors[0].data_ptr() == in);
    EXPECT(tensors[1].data_ptr() == out);
    EXPECT(tensors[0].is_contiguous());
    EXPECT(tensors[0].device().is_cpu());
    EXPECT(!tensors[0].requires_grad());
    EXPECT((tensors[0].sizes() == at::IntArrayRef{2, 3}));
    at::add_out(tensors[1], tensors[0], tensors[0]);
    in[0] = 10;
    EXPECT(tensors[0].data_ptr<float>()[0] == 10);
  }
  EXPECT(out[0] == 2 && out[5] == 12);  // and the views do not free what they do not own
}

void scalar_tensor_has_no_dimension() {
  double value = 3;
  Parameters parameters;
  parameters.add(&value, {}, "float64");
  const auto tensors = parameters.tensors();
  EXPECT(tensors[0].dim() == 0);
  EXPECT(tensors[0].numel() == 1);
  EXPECT(*tensors[0].data_ptr<double>() == 3);
}

void empty_tensor_may_have_a_null_pointer() {
  Parameters parameters;
  parameters.add(nullptr, {0}, "float32");
  parameters.add(nullptr, {2, 0, 3}, "int64");
  parameters.add(nullptr, {2, 0, 3}, "int64");
  auto tensors = parameters.tensors();
  EXPECT(tensors[0].numel() == 0 && tensors[0].defined());
  EXPECT((tensors[1].sizes() == at::IntArrayRef{2, 0, 3}));
  at::add_out(tensors[2], tensors[1], tensors[1]);
  EXPECT((tensors[2].sizes() == at::IntArrayRef{2, 0, 3}));
}

void tensor_may_have_eight_dimensions() {
  std::vector<int16_t> memory(256);
  Parameters parameters;
  parameters.add(memory.data(), {2, 2, 2, 2, 2, 2, 2, 2}, "int16");
  const auto tensors = parameters.tensors();
  EXPECT(tensors[0].dim() == 8);
  EXPECT(tensors[0].numel() == 256);
  EXPECT(tensors[0].stride(0) == 128);
}

void workspaces_are_left_out_by_the_count() {
  float value = 1;
  char workspace[8];
  Parameters parameters;
  parameters.add(&value, {1}, "float32");
  parameters.add(&value, {1}, "float32");
  parameters.data.push_back(workspace);  // MindSpore gives a workspace neither shape nor dtype
  EXPECT(parameters.tensors(2).size() == 2);
}

void no_tensors_are_no_problem() {
  EXPECT(get_torch_tensors(0, nullptr, nullptr, nullptr, nullptr, c10::kCPU).empty());
}

void ints_are_exact() {
  for (const int64_t value : {int64_t{0}, int64_t{-12}, int64_t{1} << 53, std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int64_t>::max()}) {
    EXPECT(read<int64_t>("i" + std::to_string(value) + ";") == value);
  }
}

void doubles_keep_their_bits() {
  const double values[] = {0.0,
                           -0.0,
                           0.1,
                           1e-308,
                           std::numeric_limits<double>::denorm_min(),
                           -std::numeric_limits<double>::denorm_min(),
                           std::numeric_limits<double>::max(),
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()};
  for (const double value : values) {
    EXPECT(bits(read<double>("d" + hex(bits(value)) + ";")) == bits(value));
    EXPECT(bits(read<at::Scalar>("d" + hex(bits(value)) + ";").toDouble()) == bits(value));
  }
  for (const uint64_t nan : {0x7ff8000000000000u, 0xfff8000000000001u, 0x7ff8dead0000beefu}) {
    EXPECT(bits(read<double>("d" + hex(nan) + ";")) == nan);
  }
}

void bools_are_read() {
  EXPECT(read<bool>("b1;"));
  EXPECT(!read<bool>("b0;"));
}

void scalars_keep_type_and_value() {
  const auto integer = read<at::Scalar>("i-9223372036854775808;");
  EXPECT(integer.isIntegral(false) && integer.toLong() == std::numeric_limits<int64_t>::min());
  const auto large = read<at::Scalar>("u18446744073709551615;");
  EXPECT(large.type() == c10::kUInt64 && large.toUInt64() == std::numeric_limits<uint64_t>::max());
  const auto boolean = read<at::Scalar>("b1;");
  EXPECT(boolean.isBoolean() && boolean.toBool());
  const auto number = read<at::Scalar>("c" + hex(bits(-0.0)) + "," + hex(bits(0.1)) + ";");
  EXPECT(number.isComplex());
  EXPECT(bits(number.toComplexDouble().real()) == bits(-0.0));
  EXPECT(bits(number.toComplexDouble().imag()) == bits(0.1));
}

void strings_may_hold_any_bytes() {
  const std::string all("\0;:[N\xff\xc3\xa9\n", 9);
  EXPECT(read<std::string>("s9:" + all) == all);
  EXPECT(read<std::string>("s0:").empty());
}

void names_become_enumerators() {
  EXPECT(read<c10::ScalarType>("s8:bfloat16") == c10::kBFloat16);
  EXPECT(read<c10::Layout>("s7:strided") == c10::kStrided);
  EXPECT(read<c10::MemoryFormat>("s17:contiguous_format") == c10::MemoryFormat::Contiguous);
  EXPECT(read<c10::MemoryFormat>("s15:preserve_format") == c10::MemoryFormat::Preserve);
  EXPECT(read<c10::MemoryFormat>("s13:channels_last") == c10::MemoryFormat::ChannelsLast);
  EXPECT(read<c10::MemoryFormat>("s16:channels_last_3d") == c10::MemoryFormat::ChannelsLast3d);
  EXPECT(throws([] { read<c10::ScalarType>("s4:int4"); }, "'int4'"));
  EXPECT(throws([] { read<c10::Layout>("s10:sparse_coo"); }, "strided"));
  EXPECT(throws([] { read<c10::MemoryFormat>("s4:junk"); }, "memory format"));
}

void optionals_are_absent_or_there() {
  EXPECT(!read<std::optional<int64_t>>("N"));
  EXPECT(read<std::optional<int64_t>>("i7;") == 7);
  EXPECT(!read<std::optional<std::string>>("N"));
  EXPECT(read<std::optional<std::string>>("s1:N") == "N");
  EXPECT(!read<std::optional<at::Scalar>>("N"));
  EXPECT(!read<ms_ext::OptionalTensor>("N"));
  EXPECT(read<ms_ext::OptionalTensor>("T")->index == 0);
}

void lists_are_read() {
  EXPECT((read<std::vector<int64_t>>("[3;i1;i-2;i3;") == std::vector<int64_t>{1, -2, 3}));
  EXPECT(read<std::vector<int64_t>>("[0;").empty());
  EXPECT((read<std::vector<std::string>>("[2;s1:;s2:[2") == std::vector<std::string>{";", "[2"}));
  EXPECT(read<std::vector<at::Scalar>>("[2;i1;b1;").at(1).isBoolean());
  EXPECT((read<std::array<bool, 3>>("[3;b1;b0;b1;") == std::array<bool, 3>{true, false, true}));
  EXPECT(throws([] { read<std::array<bool, 3>>("[2;b1;b0;"); }, "list of 3"));
}

void optional_lists_become_views() {
  const auto present = read<ms_ext::OptionalList<int64_t>>("[2;i4;i5;");
  const c10::OptionalArrayRef<int64_t> ints = present;
  EXPECT(ints.has_value() && ints->size() == 2 && (*ints)[1] == 5);
  const auto absent = read<ms_ext::OptionalList<double>>("N");
  const std::optional<c10::ArrayRef<double>> none = absent;
  EXPECT(!none);
}

void tensors_are_counted_in_order() {
  Arguments arguments("T[2;TTN[3;NTNi1;T");
  ms_ext::Tensor first;
  ms_ext::Tensor last;
  ms_ext::TensorList list;
  ms_ext::OptionalTensor absent;
  ms_ext::OptionalTensorList indices;
  int64_t number = 0;
  arguments >> first >> list >> absent >> indices >> number >> last;
  EXPECT(arguments.at_end());
  EXPECT(arguments.inputs() == 5);
  EXPECT(first.index == 0);
  EXPECT(list.size() == 2 && list[0].index == 1 && list[1].index == 2);
  EXPECT(!absent);
  EXPECT(indices.size() == 3 && !indices[0] && indices[1]->index == 3 && !indices[2]);
  EXPECT(last.index == 4);
}

void number_in_a_tensors_place_is_wrapped() {
  Arguments arguments("W" + ("d" + hex(bits(0.5)) + ";") + "Wi3;T");
  ms_ext::Tensor number;
  ms_ext::Tensor integer;
  ms_ext::Tensor tensor;
  arguments >> number >> integer >> tensor;
  EXPECT(number.index < 0 && number.number.dim() == 0 && number.number.scalar_type() == c10::kDouble);
  EXPECT(number.number.unsafeGetTensorImpl()->is_wrapped_number());
  EXPECT(*number.number.data_ptr<double>() == 0.5);
  EXPECT(integer.number.scalar_type() == c10::kLong);
  EXPECT(tensor.index == 0 && !tensor.number.defined());
}

void broken_text_throws() {
  const std::string words = "broken argument text";
  for (const char *text : {"", "x", "i", "i12", "T", "N", "d00;", "s3:abc", "b1;"}) {
    EXPECT(throws([&] { read<int64_t>(text); }, words));
  }
  for (const char *text : {"", "s", "s3", "s3:ab", "s99999999999999999999:a", "s-1:a", "i3;"}) {
    EXPECT(throws([&] { read<std::string>(text); }, words));
  }
  for (const char *text : {"", "[", "[2", "[2;i1;", "[9999999999;i1;", "[-1;", "[1;d0000000000000000;", "i1;"}) {
    EXPECT(throws([&] { read<std::vector<int64_t>>(text); }, words));
  }
  for (const char *text : {"", "W", "WT", "Wx", "WN", "N", "i1;"}) {
    EXPECT(throws([&] { read<ms_ext::Tensor>(text); }, words));
  }
  for (const char *text : {"", "c", "c0000000000000000;", "c0000000000000000,", "T", "s1:a"}) {
    EXPECT(throws([&] { read<at::Scalar>(text); }, words));
  }
}

// Whether each result of `function` is where the output of the same place is.
std::vector<bool> donated(ms_ext::Turns &turns, const std::vector<at::Tensor> &outputs,
                          const std::function<std::vector<at::Tensor>()> &function) {
  ms_ext::Donation donation(outputs, turns);
  const std::vector<at::Tensor> results = function();
  donation.end(results);
  std::vector<bool> in_place;
  for (size_t i = 0; i < results.size(); ++i) {
    in_place.push_back(results[i].const_data_ptr() == outputs[i].const_data_ptr());
  }
  return in_place;
}

constexpr int64_t kDonated = 1 << 16;

void results_land_in_the_outputs_memory() {
  const std::vector<at::Tensor> outputs{at::empty(kDonated), at::empty(kDonated), at::empty(2 * kDonated)};
  const auto in_order = [] {
    auto first = at::empty(kDonated), second = at::empty(kDonated), third = at::empty(2 * kDonated);
    return std::vector<at::Tensor>{first, second, third};
  };
  const auto swapped = [] {
    auto second = at::empty(kDonated), first = at::empty(kDonated), third = at::empty(2 * kDonated);
    return std::vector<at::Tensor>{first, second, third};
  };
  ms_ext::Turns turns;
  const std::vector<bool> all{true, true, true};
  EXPECT(donated(turns, outputs, in_order) == all);
  EXPECT(donated(turns, outputs, swapped) == std::vector<bool>({false, false, true}));
  EXPECT(donated(turns, outputs, swapped) == all);
  EXPECT(donated(turns, outputs, in_order) == std::vector<bool>({false, false, true}));
  EXPECT(donated(turns, outputs, in_order) == all);
}

void scratch_takes_an_outputs_memory_once() {
  const std::vector<at::Tensor> outputs{at::empty(kDonated)};
  const auto function = [] {
    {
      auto scratch = at::empty(kDonated), other = at::empty(kDonated);
    }
    {
      auto scratch = at::empty(kDonated);
    }
    return std::vector<at::Tensor>{at::empty(kDonated)};
  };
  ms_ext::Turns turns;
  EXPECT(donated(turns, outputs, function) == std::vector<bool>{false});
  EXPECT(donated(turns, outputs, function) == std::vector<bool>{true});
  ms_ext::Turns others;
  EXPECT(donated(others, outputs, function) == std::vector<bool>{false});
}

// A pool as MindSpore has one, and the tensors of one launch: a large input that the program is given, and an output.
struct FakePool {
  static inline std::set<void *> used;
  static inline char given[kDonated];
  static inline void *output;

  static void *allocate(size_t size) { return *used.insert(new char[size]).first; }
  static void release(void *data) {
    EXPECT(used.erase(data) == 1);
    if (data != given) delete[] static_cast<char *>(data);
  }
  static void *take_input(void *, size_t input) { return input == 0 ? *used.insert(given).first : nullptr; }
  static void give_output(void *, size_t, void *data) { output = data; }

  static inline const ms_ext::PoolMemory memory{allocate, release, &used, take_input, give_output};
};

void large_tensors_lie_in_the_pool() {
  at::Tensor small, large, later;
  {
    const ms_ext::Pool pool(FakePool::memory);
    small = at::empty(16);
    large = at::zeros(kDonated);
    EXPECT(FakePool::used == std::set<void *>{large.mutable_data_ptr()});
    at::empty(kDonated);
    EXPECT(FakePool::used.size() == 1);
    auto *const allocator = at::getCPUAllocator();
    allocator->raw_deallocate(allocator->raw_allocate(4 * kDonated));  // oneDNN's way
    EXPECT(FakePool::used.size() == 1);
  }
  later = at::empty(kDonated);
  EXPECT(FakePool::used.size() == 1);
  EXPECT(large.sum().item<double>() == 0);
  std::thread([&large] { large.reset(); }).join();
  EXPECT(FakePool::used.empty());
}

void given_inputs_are_freed_by_their_last_tensor() {
  const ms_ext::Pool pool(FakePool::memory);
  const at::Tensor view = at::from_blob(FakePool::given, {kDonated / 4}, at::kFloat);
  at::Tensor input = pool.input(0, view), row = input.slice(0, 1, 2);
  EXPECT(input.sizes() == view.sizes() && input.const_data_ptr() == view.const_data_ptr());
  input.reset();
  EXPECT(FakePool::used.size() == 1);
  row.reset();
  EXPECT(FakePool::used.empty());
  EXPECT(pool.input(1, view).is_same(view));
}

void outputs_get_the_memory_of_their_results() {
  const ms_ext::Pool pool(FakePool::memory);
  at::Tensor result = at::ones(kDonated);
  const void *const data = result.const_data_ptr();
  pool.give(0, std::move(result));
  EXPECT(FakePool::output == data && FakePool::used == std::set<void *>{FakePool::output});
  FakePool::release(FakePool::output);
  const at::Tensor shared = at::ones(kDonated);
  for (const at::Tensor &other : {shared, at::ones(2 * kDonated).slice(0, kDonated), at::ones(4)}) {
    pool.give(0, other);
    EXPECT(FakePool::output != other.const_data_ptr());
    EXPECT(at::from_blob(FakePool::output, other.sizes()).equal(other));
    FakePool::release(FakePool::output);
  }
}

// As PyTorch's allocators: an interface of several levels, and a class that implements it.
struct Interface {
  virtual ~Interface() = default;
  virtual int allocate(int size) = 0;
  virtual int copy(int size) const { return size; }
};
struct DeviceInterface : Interface {
  virtual std::string name() = 0;
  virtual int last(int size) = 0;
};
struct Implementation : DeviceInterface {
  explicit Implementation(bool *deleted) : deleted(deleted) {}
  ~Implementation() override { *deleted = true; }
  int allocate(int size) override { return size + 1; }
  std::string name() override { return "implementation"; }
  int last(int size) override { return allocate(size) + size; }
  bool *deleted;
};

void virtual_functions_are_counted() {
  EXPECT(ms_ext::slot_of(&Interface::allocate) == 2);  // a virtual destructor takes two places
  EXPECT(ms_ext::slot_of(&DeviceInterface::last) == 5);
  EXPECT(ms_ext::count_virtual_functions<Interface>() == 4);
  EXPECT(ms_ext::count_virtual_functions<DeviceInterface>() == 6);
}

using Allocate = int (*)(Interface *self, int size);
Allocate original = nullptr;

// Other functions are told from the replaced one, and the other object of the class from this one.
void one_virtual_function_of_one_object_is_replaced() {
  bool deleted = false;
  bool other_deleted = false;
  DeviceInterface *object = new Implementation(&deleted);
  DeviceInterface *other = new Implementation(&other_deleted);
  const Allocate replacement = [](Interface *self, int size) { return 100 * original(self, size); };
  ms_ext::replace_virtual_function(object, ms_ext::slot_of(&Interface::allocate), replacement, original);
  EXPECT(object->allocate(1) == 200);
  EXPECT(object->copy(7) == 7);
  EXPECT(object->name() == "implementation");
  EXPECT(object->last(3) == 403);  // which calls allocate
  EXPECT(dynamic_cast<Implementation *>(object) != nullptr);
  EXPECT(other->allocate(1) == 2);
  delete object;
  EXPECT(deleted && !other_deleted);
  delete other;
}

}  // namespace

int main() {
  const std::pair<const char *, void (*)()> tests[] = {
#define TEST(name) {#name, name},
      TESTS  // TEST(one) TEST(another) ..., from tests/test_cpp.py
#undef TEST
  };
  for (const auto &[name, test] : tests) {
    const int before = failures;
    try {
      test();
    } catch (const std::exception &error) {
      std::printf("%s threw: %s\n", name, error.what());
      ++failures;
    }
    std::printf("%s %s\n", failures == before ? "ok    " : "FAILED", name);
  }
  return failures == 0 ? 0 : 1;
}

// Non-tensor arguments: the text that bridge/op/encoding.py writes into the primitive's attribute, read back once per
// kernel into the exact C++ values that an ATen function takes.
//
//   N            None                         T            the next input tensor
//   i-12;        int                          W<number>    a number in a tensor's place (PyTorch's wrapped number)
//   u12;         int above 2^63               s5:bytes     string; also dtypes, layouts and memory formats, by name
//   b1;          bool                         [3;<items>   list
//   d<hex>;      double, its 64 bits          c<hex>,<hex>;  complex, the bits of both parts
//   V            an int that is the length of the next input tensor, which has no elements (a graph's unknown size)
//   R            in front of an overload's own text: see take_random_mark
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/util/OptionalArrayRef.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ms_ext {

// One tensor argument: the position of an input, or a number that stands in a tensor's place. Call turns it into the
// tensor at launch.
struct Tensor {
  int index = -1;
  at::Tensor number;
};

using OptionalTensor = std::optional<Tensor>;
using TensorList = std::vector<Tensor>;
using OptionalTensorList = std::vector<std::optional<Tensor>>;

// ATen's optional lists are views (int[]?, float[]?): this owns the values and converts.
template <typename T>
struct OptionalList {
  std::optional<std::vector<T>> values;

  operator c10::OptionalArrayRef<T>() const { return view(); }
  operator std::optional<c10::ArrayRef<T>>() const { return view(); }

 private:
  std::optional<c10::ArrayRef<T>> view() const {
    if (!values) return std::nullopt;
    return c10::ArrayRef<T>(*values);
  }
};

class Arguments {
 public:
  // `lengths` are those of the inputs that V stands for; without them it reads as 1.
  explicit Arguments(std::string text, std::vector<int64_t> lengths = {});

  Arguments &operator>>(Tensor &value);
  Arguments &operator>>(int64_t &value);
  Arguments &operator>>(double &value);
  Arguments &operator>>(bool &value);
  Arguments &operator>>(at::Scalar &value);
  Arguments &operator>>(std::string &value);
  Arguments &operator>>(c10::ScalarType &value);
  Arguments &operator>>(c10::Layout &value);
  Arguments &operator>>(c10::MemoryFormat &value);

  template <typename T>
  Arguments &operator>>(std::optional<T> &value) {
    if (take_none()) {
      value = std::nullopt;
      return *this;
    }
    return *this >> value.emplace();
  }

  template <typename T>
  Arguments &operator>>(OptionalList<T> &value) {
    return *this >> value.values;
  }

  template <typename T>
  Arguments &operator>>(std::vector<T> &value) {
    value.resize(list_size());
    for (auto &item : value) *this >> item;
    return *this;
  }

  template <size_t N>
  Arguments &operator>>(std::array<bool, N> &value) {
    check_size(list_size(), N);
    for (auto &item : value) *this >> item;
    return *this;
  }

  // How many input tensors the kernel has: those read so far, and those that follow the arguments' own.
  int inputs() const { return inputs_ + more_inputs_; }
  void expect_more_inputs(int count) { more_inputs_ = count; }
  // The positions of the inputs whose lengths were read.
  const std::vector<int> &length_inputs() const { return length_inputs_; }

  bool at_end() const { return position_ == text_.size(); }
  // The text that is not read yet.
  std::string rest() const { return text_.substr(position_); }

  // Steps over a None if it comes next.
  bool take_none() { return take_if('N'); }
  // Reads the size of a list, whose items come next.
  size_t list_size();
  // Steps over the mark of an overload that draws random numbers and is differentiated, if it comes next: the kernel
  // has one more tensor, the state of the generator before the draw.
  bool take_random_mark() { return take_if('R'); }
  // Whether the text begins with that mark, so that the state is a result.
  bool saves_random_state() const { return text_.starts_with('R'); }

 private:
  int64_t take_length();
  char take_tag();
  bool take_if(char tag);
  std::string take_until(char end);
  void expect(char tag);
  void check_size(size_t found, size_t expected) const;
  double bits(const std::string &hex) const;
  [[noreturn]] void fail(const std::string &why) const;

  std::string text_;
  size_t position_ = 0;
  int inputs_ = 0;
  int more_inputs_ = 0;
  std::vector<int64_t> lengths_;
  std::vector<int> length_inputs_;
};

}  // namespace ms_ext

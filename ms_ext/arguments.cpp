#include "arguments.h"

#include <ATen/ScalarOps.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "ms_ext.h"

namespace ms_ext {

Arguments::Arguments(std::string text, std::vector<int64_t> lengths)
    : text_(std::move(text)), lengths_(std::move(lengths)) {
  take_random_mark();
}

int64_t Arguments::take_length() {
  length_inputs_.push_back(inputs_++);
  return lengths_.empty() ? 1 : lengths_.at(length_inputs_.size() - 1);
}

void Arguments::fail(const std::string &why) const {
  throw std::invalid_argument("broken argument text at " + std::to_string(position_) + ": " + why + ": " + text_);
}

char Arguments::take_tag() {
  if (at_end()) fail("it ends too early");
  return text_[position_++];
}

bool Arguments::take_if(char tag) {
  if (at_end() || text_[position_] != tag) return false;
  ++position_;
  return true;
}

void Arguments::expect(char tag) {
  if (take_tag() != tag) fail(std::string("expected ") + tag);
}

std::string Arguments::take_until(char end) {
  const size_t stop = text_.find(end, position_);
  if (stop == std::string::npos) fail(std::string("no ") + end);
  std::string taken = text_.substr(position_, stop - position_);
  position_ = stop + 1;
  return taken;
}

size_t Arguments::list_size() {
  expect('[');
  const size_t size = std::strtoull(take_until(';').c_str(), nullptr, 10);
  if (size > text_.size() - position_) fail("the list is longer than the text");
  return size;
}

void Arguments::check_size(size_t found, size_t expected) const {
  if (found != expected) fail("a list of " + std::to_string(expected) + " was expected");
}

double Arguments::bits(const std::string &hex) const {
  const uint64_t word = std::strtoull(hex.c_str(), nullptr, 16);
  double value = 0;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

Arguments &Arguments::operator>>(Tensor &value) {
  switch (take_tag()) {
    case 'T':
      value.index = inputs_++;
      return *this;
    case 'W': {
      at::Scalar number;
      *this >> number;
      value.number = c10::scalar_to_tensor(number);
      value.number.unsafeGetTensorImpl()->set_wrapped_number(true);
      return *this;
    }
    default:
      fail("expected a tensor");
  }
}

Arguments &Arguments::operator>>(int64_t &value) {
  if (take_if('V')) {
    value = take_length();
    return *this;
  }
  expect('i');
  value = std::strtoll(take_until(';').c_str(), nullptr, 10);
  return *this;
}

Arguments &Arguments::operator>>(double &value) {
  expect('d');
  value = bits(take_until(';'));
  return *this;
}

Arguments &Arguments::operator>>(bool &value) {
  expect('b');
  value = take_until(';') == "1";
  return *this;
}

Arguments &Arguments::operator>>(at::Scalar &value) {
  switch (take_tag()) {
    case 'i':
      value = static_cast<int64_t>(std::strtoll(take_until(';').c_str(), nullptr, 10));
      return *this;
    case 'V':
      value = take_length();
      return *this;
    case 'u':
      value = static_cast<uint64_t>(std::strtoull(take_until(';').c_str(), nullptr, 10));
      return *this;
    case 'd':
      value = bits(take_until(';'));
      return *this;
    case 'b':
      value = take_until(';') == "1";
      return *this;
    case 'c': {
      const double real = bits(take_until(','));
      value = c10::complex<double>(real, bits(take_until(';')));
      return *this;
    }
    default:
      fail("expected a number");
  }
}

Arguments &Arguments::operator>>(std::string &value) {
  expect('s');
  const size_t size = std::strtoull(take_until(':').c_str(), nullptr, 10);
  if (size > text_.size() - position_) fail("the string is longer than the text");
  value = text_.substr(position_, size);
  position_ += size;
  return *this;
}

Arguments &Arguments::operator>>(c10::ScalarType &value) {
  std::string name;
  *this >> name;
  value = scalar_type(name.c_str());
  return *this;
}

Arguments &Arguments::operator>>(c10::Layout &value) {
  std::string name;
  *this >> name;
  if (name != "strided") fail("MindSpore's tensors are strided");
  value = c10::kStrided;
  return *this;
}

Arguments &Arguments::operator>>(c10::MemoryFormat &value) {
  std::string name;
  *this >> name;
  if (name == "contiguous_format") {
    value = c10::MemoryFormat::Contiguous;
  } else if (name == "preserve_format") {
    value = c10::MemoryFormat::Preserve;
  } else if (name == "channels_last") {
    value = c10::MemoryFormat::ChannelsLast;
  } else if (name == "channels_last_3d") {
    value = c10::MemoryFormat::ChannelsLast3d;
  } else {
    fail("unknown memory format");
  }
  return *this;
}

}  // namespace ms_ext

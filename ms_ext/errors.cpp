#include "errors.h"

#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

namespace ms_ext {
namespace {

constexpr char kUnitSeparator = '\x1f';

// The last error that was thrown.
std::mutex mutex;
std::string last_words;
const char *last_class = nullptr;

void note(const std::string &words, const std::string &python_class) {
  static std::set<std::string> classes;
  const std::lock_guard<std::mutex> lock(mutex);
  last_words = words;
  last_class = classes.insert(python_class).first->c_str();
}

template <typename Kind>
bool is(const std::exception &error) {
  return dynamic_cast<const Kind *>(&error) != nullptr;
}

// As PyTorch's Python translates them.
const char *python_class(const std::exception &error) {
  if (is<c10::IndexError>(error)) return "builtins:IndexError";
  if (is<c10::ValueError>(error)) return "builtins:ValueError";
  if (is<c10::TypeError>(error)) return "builtins:TypeError";
  if (is<c10::NotImplementedError>(error)) return "builtins:NotImplementedError";
  if (is<c10::LinAlgError>(error)) return "torch:linalg.LinAlgError";
  if (is<c10::OutOfMemoryError>(error)) return "torch:OutOfMemoryError";
  return "builtins:RuntimeError";
}

}  // namespace

Error as_in_python(const std::exception &error) {
  if (const auto *own = dynamic_cast<const Error *>(&error); own != nullptr) return *own;
  const auto *pytorchs = dynamic_cast<const c10::Error *>(&error);
  return {pytorchs == nullptr ? error.what() : pytorchs->what_without_backtrace(), python_class(error)};
}

Error error_of(const std::string &text) {
  const size_t end = text.find(kUnitSeparator);
  if (end == std::string::npos) return {text, "builtins:RuntimeError"};
  return {text.substr(end + 1), text.substr(0, end)};
}

void throw_as_in_python(const Error &error) {
  const std::string words = error.what_without_backtrace();
  note(words, error.python_class);
  throw std::runtime_error(words);
}

void throw_labelled(const std::string &label, const std::exception &error) {
  const Error found = as_in_python(error);
  throw_as_in_python(Error(label + ": " + found.what_without_backtrace(), found.python_class));
}

}  // namespace ms_ext

// The class of the last error if this one says its words, else null.
extern "C" const char *ms_ext_class_of_error(const char *said) {
  const std::lock_guard<std::mutex> lock(ms_ext::mutex);
  const bool is_last = !ms_ext::last_words.empty() && std::strstr(said, ms_ext::last_words.c_str()) != nullptr;
  return is_last ? ms_ext::last_class : nullptr;
}

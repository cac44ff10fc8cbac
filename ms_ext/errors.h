// Errors of launches. MindSpore makes a RuntimeError of each; Python is told of which class PyTorch's is.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <utility>

namespace ms_ext {

// An error of a class of Python's, named as pkgutil.resolve_name takes it: "builtins:IndexError".
class Error : public c10::Error {
 public:
  Error(const std::string &words, std::string python_class)
      : c10::Error({__func__, __FILE__, __LINE__}, words), python_class(std::move(python_class)) {}

  std::string python_class;
};

// The same error as Python has it.
Error as_in_python(const std::exception &error);

// The error that this text of Python's is about: its class, a unit separator, its words; a RuntimeError's words only.
Error error_of(const std::string &text);

// Throws the error. Python asks for its class by ms_ext_class_of_error.
[[noreturn]] void throw_as_in_python(const Error &error);

// The same with a name in front.
[[noreturn]] void throw_labelled(const std::string &label, const std::exception &error);

}  // namespace ms_ext

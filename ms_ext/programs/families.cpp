#include "programs/families.h"

#include <mutex>
#include <stdexcept>
#include <unordered_map>

namespace ms_ext {
namespace {

std::mutex mutex;
std::unordered_map<std::string, std::shared_ptr<const Program>> &programs() {
  static auto *const found = new std::unordered_map<std::string, std::shared_ptr<const Program>>;
  return *found;
}

// As bridge/programs/sizes.py writes it.
std::string key_of(const std::string &family, at::ArrayRef<at::Tensor> inputs) {
  std::string key = family + ":";
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i > 0) key += ';';
    for (int64_t dim = 0; dim < inputs[i].dim(); ++dim) {
      if (dim > 0) key += ',';
      key += std::to_string(inputs[i].size(dim));
    }
  }
  return key;
}

}  // namespace

std::shared_ptr<const Program> program_of(const std::string &family, at::ArrayRef<at::Tensor> inputs) {
  const std::string key = key_of(family, inputs);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = programs().find(key);
  if (found == programs().end()) throw std::runtime_error("there is no program for inputs of these sizes: " + key);
  return found->second;
}

}  // namespace ms_ext

extern "C" void ms_ext_add_program(const char *family, const char *sizes, const char *path) {
  auto program = ms_ext::Program::load(path);
  const std::lock_guard<std::mutex> lock(ms_ext::mutex);
  ms_ext::programs()[std::string(family) + ":" + sizes] = std::move(program);
}

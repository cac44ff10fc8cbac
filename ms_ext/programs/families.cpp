#include "programs/families.h"

#include <deque>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

namespace ms_ext {
namespace {

// A program, and whether it stays.
struct Known {
  std::shared_ptr<const Program> program;
  std::string path;
  bool is_kept;
};

std::mutex mutex;
std::unordered_map<std::string, Known> &programs() {
  static auto *const found = new std::unordered_map<std::string, Known>;
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

// Of the programs of a family that are not kept, only the last ones stay: a launch comes soon after its program.
void forget_oldest(const std::string &family, const std::string &added) {
  static auto *const added_to = new std::unordered_map<std::string, std::deque<std::string>>;
  std::deque<std::string> &keys = (*added_to)[family];
  keys.push_back(added);
  if (keys.size() <= 32) return;
  const auto oldest = programs().find(keys.front());
  if (oldest != programs().end() && !oldest->second.is_kept) programs().erase(oldest);
  keys.pop_front();
}

}  // namespace

std::shared_ptr<const Program> program_of(const std::string &family, at::ArrayRef<at::Tensor> inputs) {
  const std::string key = key_of(family, inputs);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = programs().find(key);
  if (found == programs().end()) throw std::runtime_error("there is no program for inputs of these sizes: " + key);
  return found->second.program;
}

}  // namespace ms_ext

extern "C" void ms_ext_add_program(const char *family, const char *sizes, const char *path, bool is_kept) {
  const std::string key = std::string(family) + ":" + sizes;
  {
    const std::lock_guard<std::mutex> lock(ms_ext::mutex);
    const auto known = ms_ext::programs().find(key);
    if (known != ms_ext::programs().end() && known->second.path == path) return;
  }
  ms_ext::Known added{is_kept ? ms_ext::Program::load(path) : ms_ext::Program::read(path), path, is_kept};
  const std::lock_guard<std::mutex> lock(ms_ext::mutex);
  const bool is_new = ms_ext::programs().insert_or_assign(key, std::move(added)).second;
  if (!is_kept && is_new) ms_ext::forget_oldest(family, key);
}

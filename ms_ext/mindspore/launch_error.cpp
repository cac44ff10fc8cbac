// Compiled with MindSpore's string ABI, like aot_extra.cpp: it calls into MindSpore with a C++ stream.
#include "mindspore/launch_error.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <sstream>
#include <string>

namespace {

std::mutex mutex;
std::string explanation;

// mindspore::LogWriter::MessageHandler: adds to an exception's text before it is thrown.
using MessageHandler = void (*)(std::ostringstream *text);

void add_explanation(std::ostringstream *text) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (explanation.empty()) return;
  const std::string words = text->str();
  text->str("");
  *text << explanation << " (MindSpore: " << words << ")";
  explanation.clear();
}

// Calls mindspore::LogWriter::SetMessageHandler(const MessageHandler &), which libmindspore_core.so exports.
bool install() {
  void *core = dlopen("libmindspore_core.so", RTLD_LAZY | RTLD_NOLOAD);
  if (core == nullptr) return false;
  using Set = void (*)(const MessageHandler &);
  const auto set = reinterpret_cast<Set>(dlsym(core,
                                               "_ZN9mindspore9LogWriter17SetMessageHandlerERKPFvPSt19basic_"
                                               "ostringstreamIcSt11char_traitsIcESaIcEEE"));
  if (set != nullptr) set(add_explanation);
  return set != nullptr;
}

}  // namespace

extern "C" {

std::atomic<int64_t> ms_ext_failed_launches{0};

void ms_ext_note_failed_launch() { ++ms_ext_failed_launches; }

void ms_ext_explain(const char *message) {
  static const bool installed = install();
  if (!installed) return;  // MindSpore's log has the words
  const std::lock_guard<std::mutex> lock(mutex);
  explanation = message;
}

}  // extern "C"

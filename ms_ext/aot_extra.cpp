// Compiled with -D_GLIBCXX_USE_CXX11_ABI=0, MindSpore's string ABI; see aot_extra.h.

#include "aot_extra.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

// The memory layout and the order of virtual functions of mindspore::AotExtra (custom_aot_extra.h, the same in
// MindSpore 2.8 to 2.10). Only what comes before the last function used has to be spelled out.
class AotExtra {
 public:
  virtual ~AotExtra() = default;
  virtual bool HasAttr(std::string name) = 0;
  virtual bool GetAttrBool(std::string name) = 0;
  virtual int64_t GetAttrInt(std::string name) = 0;
  virtual float GetAttrFloat(std::string name) = 0;
  virtual std::string GetAttrStr(std::string name) = 0;

  std::vector<size_t> workspace;
  ms_ext::KernelData *kernel_data;
};

AotExtra *as_extra(void *extra) { return static_cast<AotExtra *>(extra); }

}  // namespace

extern "C" {

void ms_ext_read_attribute(void *extra, const char *name, void (*receive)(const char *, unsigned long, void *),
                           void *context) {
  const std::string text = as_extra(extra)->GetAttrStr(name);
  receive(text.data(), text.size(), context);
}

void ms_ext_set_kernel_data(void *extra, ms_ext::KernelData *data) { as_extra(extra)->kernel_data = data; }

ms_ext::KernelData *ms_ext_kernel_data(void *extra) { return as_extra(extra)->kernel_data; }

}  // extern "C"

// Compiled with -D_GLIBCXX_USE_CXX11_ABI=0, MindSpore's string ABI; see aot_extra.h.
#include "mindspore/aot_extra.h"

#include "mindspore/aot_extra_layout.h"

namespace {

ms_ext::AotExtra *as_extra(void *extra) { return static_cast<ms_ext::AotExtra *>(extra); }

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

// What a kernel may ask of the `extra` argument that MindSpore hands to Init, launch and InferShape.
//
// MindSpore's libraries use the old C++ string ABI and PyTorch's the new one, while MindSpore's AotExtra takes
// std::string by value in virtual functions. So only aot_extra.cpp, compiled with the old ABI, touches that class, and
// everybody else goes through these C functions.
#pragma once

namespace ms_ext {

// Decoded state of one kernel. MindSpore deletes it through this virtual destructor when the kernel goes away; the
// layout mirrors mindspore::AotKernelData.
struct KernelData {
  virtual ~KernelData() = default;
};

}  // namespace ms_ext

extern "C" {

// Calls `receive(text, size, context)` with the primitive's string attribute `name`; MindSpore throws if it is absent.
void ms_ext_read_attribute(void *extra, const char *name, void (*receive)(const char *, unsigned long, void *),
                           void *context);

// Hands `data` to the kernel, which owns it from then on.
void ms_ext_set_kernel_data(void *extra, ms_ext::KernelData *data);

// The data of this kernel, or nullptr if Init set none.
ms_ext::KernelData *ms_ext_kernel_data(void *extra);

}  // extern "C"

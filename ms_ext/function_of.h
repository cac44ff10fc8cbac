// Functions of the bridge's libraries that are compiled with other headers.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace ms_ext {

// The library, or null where nobody has loaded it.
inline void *loaded(const char *library) { return dlopen(library, RTLD_LAZY | RTLD_NOLOAD); }

// A function of a library that is loaded.
template <typename Function>
Function *function_of(const char *library, const char *name) {
  void *const handle = loaded(library);
  void *const function = handle == nullptr ? nullptr : dlsym(handle, name);
  if (function == nullptr) throw std::runtime_error(std::string(library) + " is not loaded, or has no " + name);
  return reinterpret_cast<Function *>(function);
}

}  // namespace ms_ext

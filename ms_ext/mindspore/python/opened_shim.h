// A shim as this module sees it: by the C functions that MindSpore knows, in a library that is opened.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "mindspore/aot_extra_layout.h"

namespace ms_ext::pynative {

using Init = int (*)(int *ndims, int64_t **shapes, const char **dtypes, void *extra);
using Launch = int (*)(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                       void *extra);
using Explain = void (*)(const char *message);

// A shim with its decoded arguments. Launches that are under way keep it alive.
struct Shim {
  // Args: its library and function; whether that is the host's; whether to run it at once; attributes of the primitive.
  Shim(const std::string &library, const std::string &function, bool on_host, bool at_once, const std::string &op,
       const std::string &args)
      : on_host(on_host), at_once(at_once), extra(op, args) {
    void *handle = dlopen(library.c_str(), RTLD_NOW);
    const auto find = [handle](const std::string &name) {
      return handle == nullptr ? nullptr : dlsym(handle, name.c_str());
    };
    const auto init = reinterpret_cast<Init>(find(function + "Init"));
    launch = reinterpret_cast<Launch>(find(function));
    explain = reinterpret_cast<Explain>(find("ms_ext_explain"));
    if (init == nullptr || launch == nullptr || explain == nullptr) {
      throw std::runtime_error(library + " has no kernel " + function);
    }
    init(nullptr, nullptr, nullptr, &extra);
  }
  Shim(const Shim &) = delete;
  Shim &operator=(const Shim &) = delete;

  Launch launch;
  Explain explain;
  bool on_host;
  bool at_once;  // on the thread that calls, before the call returns
  ms_ext::Extra extra;
};

}  // namespace ms_ext::pynative

#include "aot.h"

#include <cstring>
#include <stdexcept>

#include "mindspore/launch_error.h"
#include "ms_ext.h"
#include "shim.h"

namespace ms_ext {

const Memory kHost{true, [](void *to, size_t bytes, void *) { std::memset(to, 0, bytes); },
                   [](void *to, const void *from, size_t bytes, void *) { std::memcpy(to, from, bytes); }};

namespace {

size_t size_in_bytes(int ndim, const int64_t *shape, const char *dtype) {
  size_t size = c10::elementSize(scalar_type(dtype));
  for (int i = 0; i < ndim; ++i) size *= static_cast<size_t>(shape[i]);
  return size;
}

// Leaves out the hidden ones of what stands for the parameters.
template <typename T>
std::vector<T> shown(const T *values, size_t count, const Aot &aot) {
  std::vector<T> kept(values, values + count);
  const auto end = kept.begin() + static_cast<std::ptrdiff_t>(aot.inputs);
  kept.erase(end - static_cast<std::ptrdiff_t>(aot.hidden), end);
  return kept;
}

void launch(const Aot &aot, int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
            void *extra) {
  for (size_t i = 0; i < aot.initial.size(); ++i) {
    if (aot.initial[i] == kUninitialised) continue;
    const size_t output = aot.inputs + i;
    const size_t bytes = size_in_bytes(ndims[output], shapes[output], dtypes[output]);
    if (bytes == 0) continue;
    if (aot.initial[i] == kZeros) {
      aot.memory.zero(params[output], bytes, stream);
    } else {
      const auto input = static_cast<size_t>(aot.initial[i]);
      if (bytes != size_in_bytes(ndims[input], shapes[input], dtypes[input])) {
        throw std::runtime_error(label(extra) + ": output " + std::to_string(i) + " starts as a copy of input " +
                                 std::to_string(input) + ", which has another size");
      }
      aot.memory.copy(params[output], params[input], bytes, stream);
    }
  }
  int status = 0;
  if (aot.hidden == 0) {
    status = aot.function(nparam, params, ndims, shapes, dtypes, stream, extra);
  } else {
    const size_t described = aot.inputs + aot.initial.size();  // workspaces have neither shape nor dtype
    auto data = shown(params, static_cast<size_t>(nparam), aot);
    auto ranks = shown(ndims, described, aot);
    auto sizes = shown(shapes, described, aot);
    auto types = shown(dtypes, described, aot);
    status = aot.function(static_cast<int>(data.size()), data.data(), ranks.data(), sizes.data(), types.data(), stream,
                          extra);
  }
  if (status != 0) throw std::runtime_error(label(extra) + ": it returned " + std::to_string(status) + ", not 0");
}

}  // namespace

int launch_aot(const Aot &aot, int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes,
               void *stream, void *extra) {
  try {
    launch(aot, nparam, params, ndims, shapes, dtypes, stream, extra);
  } catch (const std::exception &error) {
    ms_ext_note_failed_launch();
    if (!aot.memory.on_host) ms_ext_explain(error.what());
    throw;
  }
  return 0;
}

}  // namespace ms_ext

#include <cstdint>

#include "attributes.h"

struct Sign : mindspore::AotKernelData {
  float sign;
};

extern "C" int SignedInit(int *, int64_t **, const char **, mindspore::AotExtra *extra) {
  auto *data = new Sign;
  data->sign = sign_of(read_mode(extra));
  extra->SetKernelData(data);
  return 0;
}

// Writes to `state`, which is its second output, and returns its first.
extern "C" int Signed(int nparam, void **params, int *ndims, int64_t **shapes, const char **, void *, void *extra) {
  if (nparam != 4) return 1;
  const float sign = static_cast<const Sign *>(static_cast<mindspore::AotExtra *>(extra)->KernelData())->sign;
  int64_t n = 1;
  for (int i = 0; i < ndims[0]; ++i) n *= shapes[0][i];
  for (int64_t i = 0; i < n; ++i) {
    const float x = static_cast<const float *>(params[1])[i];
    static_cast<float *>(params[2])[i] += x;
    static_cast<float *>(params[3])[i] = sign * x;
  }
  return 0;
}

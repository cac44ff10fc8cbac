// Plain MindSpore AOT kernels, for tests/test_kernels.py.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "custom_aot_extra.h"

namespace {

int64_t count(int ndim, const int64_t *shape) {
  int64_t product = 1;
  for (int i = 0; i < ndim; ++i) product *= shape[i];
  return product;
}

struct Settings : mindspore::AotKernelData {
  float scale;
  int64_t shift;
  bool negate;
  std::string mode;
};

}  // namespace

// x -> (scale * x + shift) * (negate ? -1 : 1), or x if mode is "same"; the attributes are read in Init, with a
// workspace of x's size.
extern "C" int AffineInit(int *ndims, int64_t **shapes, const char **, mindspore::AotExtra *extra) {
  auto *settings = new Settings;
  settings->scale = extra->Attr<float>("scale");
  settings->shift = extra->Attr<int64_t>("shift");
  settings->negate = extra->Attr<bool>("negate");
  settings->mode = extra->Attr<std::string>("mode");
  extra->SetKernelData(settings);
  extra->SetWorkSpace({static_cast<size_t>(count(ndims[0], shapes[0])) * sizeof(float)});
  return 0;
}

extern "C" int Affine(int nparam, void **params, int *ndims, int64_t **shapes, const char **, void *,
                      void *extra_void) {
  if (nparam != 3) return 1;
  const auto *extra = static_cast<mindspore::AotExtra *>(extra_void);
  const auto *settings = static_cast<const Settings *>(extra->KernelData());
  const int64_t n = count(ndims[0], shapes[0]);
  auto *scratch = static_cast<float *>(params[2]);
  std::memcpy(scratch, params[0], static_cast<size_t>(n) * sizeof(float));
  for (int64_t i = 0; i < n; ++i) {
    const float moved = settings->scale * scratch[i] + static_cast<float>(settings->shift);
    static_cast<float *>(params[1])[i] = settings->mode == "same" ? scratch[i] : settings->negate ? -moved : moved;
  }
  return 0;
}

// Adds x to its outputs: to the first, and to the second twice.
extern "C" int Accumulate(int nparam, void **params, int *ndims, int64_t **shapes, const char **, void *, void *) {
  if (nparam != 4) return 1;
  for (int64_t i = 0; i < count(ndims[0], shapes[0]); ++i) {
    const float x = static_cast<const float *>(params[0])[i];
    static_cast<float *>(params[2])[i] += x;
    static_cast<float *>(params[3])[i] += 2 * x;
  }
  return 0;
}

// (b, n) -> sums over b, (n); the gradient gets no tensor of the input's shape but the output.
extern "C" int SumRows(int nparam, void **params, int *ndims, int64_t **shapes, const char **, void *, void *) {
  if (nparam != 2 || ndims[0] != 2) return 1;
  auto *sums = static_cast<float *>(params[1]);
  for (int64_t j = 0; j < shapes[0][1]; ++j) {
    sums[j] = 0;
    for (int64_t i = 0; i < shapes[0][0]; ++i) sums[j] += static_cast<const float *>(params[0])[i * shapes[0][1] + j];
  }
  return 0;
}

extern "C" int SumRowsGrad(int nparam, void **params, int *, int64_t **shapes, const char **dtypes, void *, void *) {
  if (nparam != 2 || std::strcmp(dtypes[1], "float32") != 0) return 1;
  for (int64_t i = 0; i < shapes[1][0] * shapes[1][1]; ++i) {
    static_cast<float *>(params[1])[i] = static_cast<const float *>(params[0])[i % shapes[1][1]];
  }
  return 0;
}

extern "C" int Fails(int, void **, int *, int64_t **, const char **, void *, void *) { return 7; }

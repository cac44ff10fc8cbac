// Two element-wise operators of float32 tensors as plain MindSpore AOT kernels: a + b, and a * a + b * b with a
// backward kernel of its own. No header is needed.
#include <cstdint>

namespace {

int64_t count(int ndim, const int64_t *shape) {
  int64_t product = 1;
  for (int i = 0; i < ndim; ++i) product *= shape[i];
  return product;
}

}  // namespace

// (a, b) -> a + b
extern "C" int CustomAdd(int nparam, void **params, int *ndims, int64_t **shapes, const char **, void *, void *) {
  if (nparam != 3) return 1;
  const auto *a = static_cast<const float *>(params[0]);
  const auto *b = static_cast<const float *>(params[1]);
  auto *sum = static_cast<float *>(params[2]);
  const int64_t n = count(ndims[2], shapes[2]);
  for (int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
  return 0;
}

// (a, b) -> a * a + b * b
extern "C" int CustomAddSquares(int nparam, void **params, int *ndims, int64_t **shapes, const char **, void *,
                                void *) {
  if (nparam != 3) return 1;
  const auto *a = static_cast<const float *>(params[0]);
  const auto *b = static_cast<const float *>(params[1]);
  auto *sum = static_cast<float *>(params[2]);
  const int64_t n = count(ndims[2], shapes[2]);
  for (int64_t i = 0; i < n; ++i) sum[i] = a[i] * a[i] + b[i] * b[i];
  return 0;
}

// (grad, a, b) -> (2 * a * grad, 2 * b * grad)
extern "C" int CustomAddSquaresGrad(int nparam, void **params, int *ndims, int64_t **shapes, const char **, void *,
                                    void *) {
  if (nparam != 5) return 1;
  const auto *grad = static_cast<const float *>(params[0]);
  const auto *a = static_cast<const float *>(params[1]);
  const auto *b = static_cast<const float *>(params[2]);
  auto *grad_a = static_cast<float *>(params[3]);
  auto *grad_b = static_cast<float *>(params[4]);
  const int64_t n = count(ndims[0], shapes[0]);
  for (int64_t i = 0; i < n; ++i) {
    grad_a[i] = 2 * a[i] * grad[i];
    grad_b[i] = 2 * b[i] * grad[i];
  }
  return 0;
}

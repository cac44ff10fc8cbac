#include "function.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>

namespace ms_ext {

Results *keep_results(const std::function<void(Results &)> &evaluate) {
  auto results = std::make_unique<Results>();
  try {
    evaluate(*results);
    for (auto &tensor : results->tensors) tensor = tensor.contiguous().resolve_conj().resolve_neg();
  } catch (const c10::Error &error) {
    results->error = error.what_without_backtrace();
  } catch (const std::exception &error) {
    results->error = error.what();
  }
  if (!results->error.empty()) results->tensors.clear();
  return results.release();
}

}  // namespace ms_ext

// How bridge/kernels/native.py reads results.
extern "C" {

const char *ms_ext_results_error(const ms_ext::Results *results) { return results->error.c_str(); }

int ms_ext_results_count(const ms_ext::Results *results) { return static_cast<int>(results->tensors.size()); }

int ms_ext_result_ndim(const ms_ext::Results *results, int i) {
  return static_cast<int>(results->tensors[static_cast<size_t>(i)].dim());
}

// The sizes go to `shape`; the ScalarType's name, which PyTorch keeps, is returned.
const char *ms_ext_result_spec(const ms_ext::Results *results, int i, int64_t *shape) {
  const at::Tensor &tensor = results->tensors[static_cast<size_t>(i)];
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), shape);
  return c10::toString(tensor.scalar_type());
}

void ms_ext_result_copy(const ms_ext::Results *results, int i, void *to) {
  const at::Tensor &tensor = results->tensors[static_cast<size_t>(i)];
  at::from_blob(to, tensor.sizes(), tensor.options()).copy_(tensor);
}

void ms_ext_results_free(ms_ext::Results *results) { delete results; }

}  // extern "C"

// The batched outer product for the CPU: out[b, i, j] = x[b, i] * y[b, j].
#include "outer.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>

at::Tensor outer(const at::Tensor &x_input, const at::Tensor &y_input) {
  check_outer(x_input, y_input);
  const at::Tensor x = x_input.contiguous(), y = y_input.contiguous();
  const int64_t batch = x.size(0), n = x.size(1), m = y.size(1);
  at::Tensor out = at::empty({batch, n, m}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "outer", [&] {
    const scalar_t *left = x.const_data_ptr<scalar_t>();
    const scalar_t *right = y.const_data_ptr<scalar_t>();
    scalar_t *to = out.mutable_data_ptr<scalar_t>();
    for (int64_t row = 0; row < batch * n; ++row) {
      const scalar_t *column = right + row / n * m;
      for (int64_t j = 0; j < m; ++j) to[row * m + j] = left[row] * column[j];
    }
  });
  return out;
}

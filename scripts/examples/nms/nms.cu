// detection::nms for CUDA. A kernel finds which better boxes cover each box, as bits; the greedy pass over them is
// sequential, so one thread makes it. The size of the result is read back by the host, which has to know it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

namespace {

constexpr int kBits = 64;

__device__ float intersection_over_union(const float *a, const float *b) {
  const float width = fminf(a[2], b[2]) - fmaxf(a[0], b[0]);
  const float height = fminf(a[3], b[3]) - fmaxf(a[1], b[1]);
  const float shared = fmaxf(width, 0.0f) * fmaxf(height, 0.0f);
  const float area_a = (a[2] - a[0]) * (a[3] - a[1]);
  const float area_b = (b[2] - b[0]) * (b[3] - b[1]);
  return shared / (area_a + area_b - shared);
}

// covers[i * words + w]: which of the boxes 64 * w ..., all worse than i, box i would remove.
__global__ void find_covered(const float *boxes, int64_t n, int64_t words, double threshold, int64_t *covers) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t word = blockIdx.y;
  if (i >= n) return;
  unsigned long long bits = 0;
  for (int bit = 0; bit < kBits; ++bit) {
    const int64_t j = word * kBits + bit;
    if (j > i && j < n && intersection_over_union(boxes + 4 * i, boxes + 4 * j) > threshold) bits |= 1ULL << bit;
  }
  covers[i * words + word] = static_cast<int64_t>(bits);
}

// One thread: `removed` has a bit for each box, `kept` gets the positions of those that stay, and then their number.
__global__ void select(const int64_t *covers, const int64_t *order, int64_t n, int64_t words, int64_t *removed,
                       int64_t *kept) {
  for (int64_t w = 0; w < words; ++w) removed[w] = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (removed[i / kBits] >> (i % kBits) & 1) continue;
    kept[count++] = order[i];
    for (int64_t w = i / kBits; w < words; ++w) removed[w] |= covers[i * words + w];
  }
  kept[n] = count;
}

at::Tensor nms(const at::Tensor &boxes, const at::Tensor &scores, double threshold) {
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, "nms: boxes must be (n, 4), not ", boxes.sizes());
  TORCH_CHECK(scores.dim() == 1 && scores.size(0) == boxes.size(0), "nms: scores must be (", boxes.size(0), "), not ",
              scores.sizes());
  TORCH_CHECK(boxes.scalar_type() == at::kFloat && scores.scalar_type() == at::kFloat,
              "nms: boxes and scores must be float32, not ", boxes.scalar_type(), " and ", scores.scalar_type());
  const int64_t n = boxes.size(0);
  const auto longs = boxes.options().dtype(at::kLong);
  if (n == 0) return at::empty({0}, longs);
  const at::Tensor order = at::argsort(scores, /*stable=*/true, /*dim=*/0, /*descending=*/true);
  const at::Tensor sorted = at::index_select(boxes, 0, order).contiguous();
  const int64_t words = (n + kBits - 1) / kBits;
  const at::Tensor covers = at::empty({n, words}, longs);
  const at::Tensor removed = at::empty({words}, longs);
  const at::Tensor kept = at::empty({n + 1}, longs);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  const dim3 blocks(static_cast<unsigned>((n + kBits - 1) / kBits), static_cast<unsigned>(words));
  find_covered<<<blocks, kBits, 0, stream>>>(sorted.const_data_ptr<float>(), n, words, threshold,
                                             covers.mutable_data_ptr<int64_t>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  select<<<1, 1, 0, stream>>>(covers.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>(), n, words,
                              removed.mutable_data_ptr<int64_t>(), kept.mutable_data_ptr<int64_t>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return kept.slice(0, 0, kept[n].item<int64_t>()).clone();
}

}  // namespace

TORCH_LIBRARY_IMPL(detection, CUDA, m) { m.impl("nms", &nms); }

// Non-maximum suppression, registered with PyTorch as detection::nms. How many boxes it keeps depends on the data.
#include <ATen/core/Tensor.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

namespace {

void check(const at::Tensor &boxes, const at::Tensor &scores) {
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, "nms: boxes must be (n, 4), not ", boxes.sizes());
  TORCH_CHECK(scores.dim() == 1 && scores.size(0) == boxes.size(0), "nms: scores must be (", boxes.size(0), "), not ",
              scores.sizes());
  TORCH_CHECK(boxes.scalar_type() == at::kFloat && scores.scalar_type() == at::kFloat,
              "nms: boxes and scores must be float32, not ", boxes.scalar_type(), " and ", scores.scalar_type());
}

float intersection_over_union(const float *a, const float *b) {
  const float width = std::min(a[2], b[2]) - std::max(a[0], b[0]);
  const float height = std::min(a[3], b[3]) - std::max(a[1], b[1]);
  const float shared = std::max(width, 0.0f) * std::max(height, 0.0f);
  const float area_a = (a[2] - a[0]) * (a[3] - a[1]);
  const float area_b = (b[2] - b[0]) * (b[3] - b[1]);
  return shared / (area_a + area_b - shared);
}

// boxes (n, 4) float32 as x1, y1, x2, y2; scores (n) float32. The positions of the boxes that are kept, best first:
// each overlaps every better one that is kept by at most `threshold`.
at::Tensor nms(const at::Tensor &boxes, const at::Tensor &scores, double threshold) {
  check(boxes, scores);
  const at::Tensor order = at::argsort(scores, /*stable=*/true, /*dim=*/0, /*descending=*/true);
  const at::Tensor rows = boxes.contiguous();
  const float *box = rows.const_data_ptr<float>();
  const int64_t *place = order.const_data_ptr<int64_t>();
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < order.numel(); ++i) {
    const bool covered = std::any_of(kept.begin(), kept.end(), [&](int64_t better) {
      return intersection_over_union(box + 4 * better, box + 4 * place[i]) > threshold;
    });
    if (!covered) kept.push_back(place[i]);
  }
  at::Tensor result = at::empty({static_cast<int64_t>(kept.size())}, boxes.options().dtype(at::kLong));
  std::copy(kept.begin(), kept.end(), result.mutable_data_ptr<int64_t>());
  return result;
}

}  // namespace

TORCH_LIBRARY(detection, m) { m.def("nms(Tensor boxes, Tensor scores, float threshold) -> Tensor"); }

TORCH_LIBRARY_IMPL(detection, CPU, m) { m.impl("nms", &nms); }

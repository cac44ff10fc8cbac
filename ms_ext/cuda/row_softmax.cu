#include "cuda/device_code.h"
#include "cuda/row_kernels.h"

namespace ms_ext::row_kernels {
namespace {

// One block for each row, STEPS times 4 numbers for each thread.
//
// The bits are those of PyTorch's cunn_SoftMaxForwardReg, whose 1,024 threads have the numbers t, t + 1024, ...: each
// adds its own up, then 32 neighbours add theirs by halves, and then the 32 groups do. Here a thread is four of those
// neighbours. So it loads and stores 16 bytes at once, a multiprocessor has more rows under way, and the time is that
// of the memory, where PyTorch's takes 1.7 times as long (H200, 4096x4096).
constexpr const char *kSource = R"cuda(
constexpr unsigned kAll = 0xffffffff;

extern "C" __global__ void __launch_bounds__(256) softmax_row(float *output, const float *input, int length) {
  __shared__ float maxima[8];
  __shared__ float sums[32];
  const long long row = static_cast<long long>(blockIdx.x) * length;
  const int thread = threadIdx.x;
  const auto is_inside = [&](int step) { return step < STEPS - 1 || 1024 * step + 4 * thread < length; };
  float4 x[STEPS];

  float maximum = -3.402823466e+38f;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    if (!is_inside(step)) continue;
    x[step] = *reinterpret_cast<const float4 *>(input + row + 1024 * step + 4 * thread);
    maximum = fmaxf(maximum, fmaxf(fmaxf(x[step].x, x[step].y), fmaxf(x[step].z, x[step].w)));
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(kAll, maximum, other));
  if (thread % 32 == 0) maxima[thread / 32] = maximum;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < 8; ++warp) maximum = fmaxf(maximum, maxima[warp]);

  float sum[4] = {};  // of the four neighbours
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    if (!is_inside(step)) continue;
    x[step].x = expf(x[step].x - maximum);
    x[step].y = expf(x[step].y - maximum);
    x[step].z = expf(x[step].z - maximum);
    x[step].w = expf(x[step].w - maximum);
    sum[0] += x[step].x;
    sum[1] += x[step].y;
    sum[2] += x[step].z;
    sum[3] += x[step].w;
  }
#pragma unroll
  for (int other = 4; other > 0; other /= 2) {
#pragma unroll
    for (float &part : sum) part += __shfl_down_sync(kAll, part, other, 8);
  }
  if (thread % 8 == 0) sums[thread / 8] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
  __syncthreads();
  float total = sums[thread % 32];
#pragma unroll
  for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(kAll, total, other);

#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    if (!is_inside(step)) continue;
    const float4 y = {x[step].x / total, x[step].y / total, x[step].z / total, x[step].w / total};
    *reinterpret_cast<float4 *>(output + row + 1024 * step + 4 * thread) = y;
  }
}
)cuda";

// Where PyTorch runs the kernel of that order: up to 2,048 numbers one warp does a row, and from 9,217 on the numbers
// stay in shared memory.
constexpr int64_t kShortest = 2049;
constexpr int64_t kLongest = 9 * 1024;

// The kernel for rows of `length` numbers.
DeviceCode &code(int64_t length) {
  static std::mutex mutex;
  static std::map<int64_t, DeviceCode> codes;
  const int64_t steps = (length + 1023) / 1024;
  const std::lock_guard<std::mutex> lock(mutex);
  return codes.try_emplace(steps, "softmax_row", kSource, std::vector<std::string>{c10::str("STEPS=", steps)})
      .first->second;
}

}  // namespace

bool softmax(const at::Tensor &self, int64_t dim, const at::Tensor &result) {
  if (!are_rows_of_floats(self, dim, kShortest, kLongest) || !are_rows_of_floats(result, dim, kShortest, kLongest)) {
    return false;
  }
  const int64_t length = self.size(-1);
  const auto *input = self.const_data_ptr<float>();
  auto *output = result.mutable_data_ptr<float>();
  const auto aligned = [](const void *data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  if (length % 4 != 0 || !aligned(input) || !aligned(output)) return false;
  return code(length).launch(self.numel() / length, 256, output, input, static_cast<int>(length));
}

}  // namespace ms_ext::row_kernels

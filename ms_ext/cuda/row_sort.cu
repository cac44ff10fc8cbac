#include "cuda/device_code.h"
#include "cuda/row_kernels.h"

namespace ms_ext::row_kernels {
namespace {

// One block for each row: a stable radix sort by the numbers' bits, 8 of them at a time from the lowest. -0 is equal to
// 0, and NaNs are where their bits put them, as in PyTorch.
//
// PyTorch copies the row, writes the indices 0, 1, ... in 64 bits, and moves both 8 times. Here an index has the 12
// bits that a row needs, is never read, and is moved with its number 4 times (H200, 4096x4096: 0.6 of the time).
constexpr const char *kSource = R"cuda(
constexpr unsigned kAll = 0xffffffff;
constexpr unsigned kMinusZero = 0x80000000;
constexpr int kWarps = 8, kThreads = 32 * kWarps, kLength = 4096, kEach = kLength / kThreads;
constexpr int kBits = 8, kDigits = 1 << kBits;  // one for each thread
constexpr unsigned kIndex = kLength - 1, kWasMinusZero = 0x8000;

// In the order of these keys, as unsigned numbers, come floats with such bits; and back.
__device__ unsigned key_of(unsigned bits) { return bits >> 31 ? ~bits : bits | kMinusZero; }
__device__ unsigned bits_of(unsigned key) { return key >> 31 ? key ^ kMinusZero : ~key; }

// The threads of the warp that have the same digit.
__device__ unsigned peers_of(unsigned digit) {
  unsigned peers = kAll;
#pragma unroll
  for (int bit = 0; bit < kBits; ++bit) {
    const bool set = digit >> bit & 1;
    const unsigned with = __ballot_sync(kAll, set);
    peers &= set ? with : ~with;
  }
  return peers;
}

extern "C" __global__ void __launch_bounds__(kThreads, 3)
    sort_row(unsigned *values, long long *indices, const unsigned *input, int length, unsigned flip) {
  __shared__ unsigned sorted_keys[kLength];
  __shared__ unsigned short sorted_places[kLength];
  __shared__ unsigned short counts[kWarps][kDigits];  // of each digit in a warp's part; then where the first one goes
  __shared__ unsigned totals[kWarps];
  const long long row = static_cast<long long>(blockIdx.x) * length;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int first = warp * (kLength / kWarps) + lane;  // a warp has a part of the row, and of each 32 a thread has one

  unsigned key[kEach];
  unsigned place[kEach];  // the index, whether the number was -0, and in the upper half its rank
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = first + 32 * i;
    const unsigned bits = at < length ? input[row + at] : 0;
    const bool minus_zero = bits == kMinusZero;
    key[i] = at < length ? key_of(minus_zero ? 0 : bits) ^ flip : kAll;  // what fills the row up stays at its end
    place[i] = at | (minus_zero ? kWasMinusZero : 0);
  }

#pragma unroll 1
  for (int shift = 0; true; shift += kBits) {
    // The rank of each number among those of its warp with the same digit.
#pragma unroll
    for (int digit = 0; digit < kDigits; digit += 32) counts[warp][digit + lane] = 0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const unsigned digit = key[i] >> shift & (kDigits - 1);
      const unsigned peers = peers_of(digit);
      const unsigned before = counts[warp][digit], below = __popc(peers & ((1u << lane) - 1));
      __syncwarp();
      if (below == 0) counts[warp][digit] = before + __popc(peers);
      __syncwarp();
      place[i] |= (before + below) << 16;
    }
    __syncthreads();

    // Each thread has one digit: where it begins in the row, and there in each warp's part.
    unsigned count = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const unsigned own = counts[w][thread];
      counts[w][thread] = count;
      count += own;
    }
    unsigned until = count;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const unsigned lower = __shfl_up_sync(kAll, until, distance);
      if (lane >= distance) until += lower;
    }
    if (lane == 31) totals[warp] = until;
    __syncthreads();
    unsigned begin = until - count;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) begin += w < warp ? totals[w] : 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) counts[w][thread] += begin;
    __syncthreads();

#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const unsigned to = counts[warp][key[i] >> shift & (kDigits - 1)] + (place[i] >> 16);
      sorted_keys[to] = key[i];
      sorted_places[to] = place[i];
    }
    __syncthreads();
    if (shift + kBits == 32) break;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      key[i] = sorted_keys[first + 32 * i];
      place[i] = sorted_places[first + 32 * i];
    }
  }

  for (int at = thread; at < length; at += kThreads) {
    const unsigned place = sorted_places[at];
    values[row + at] = place & kWasMinusZero ? kMinusZero : bits_of(sorted_keys[at] ^ flip);
    indices[row + at] = place & kIndex;
  }
}
)cuda";

// Shorter rows PyTorch sorts in smaller blocks, and longer ones with several kernels.
constexpr int64_t kShortest = 2049;
constexpr int64_t kLongest = 4096;

}  // namespace

bool sort(const at::Tensor &self, int64_t dim, bool descending, const at::Tensor &values, const at::Tensor &indices) {
  if (!are_rows_of_floats(self, dim, kShortest, kLongest) || !are_rows_of_floats(values, dim, kShortest, kLongest) ||
      !indices.is_contiguous()) {
    return false;
  }
  static DeviceCode code("sort_row", kSource);
  const int64_t length = self.size(-1);
  return code.launch(self.numel() / length, 256, values.mutable_data_ptr<float>(), indices.mutable_data_ptr<int64_t>(),
                     self.const_data_ptr<float>(), static_cast<int>(length), descending ? ~0u : 0u);
}

}  // namespace ms_ext::row_kernels

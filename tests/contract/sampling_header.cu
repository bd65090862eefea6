// A kernel as an engine writes it: one token per row of probabilities, from a number drawn by the caller.
// EXPECTS_LAST_VALID_INDEX says what the installed header is known to take.
#include <flashinfer_compat/sampling.cuh>

namespace compat = flashinfer_compat::sampling;
using namespace flashinfer;
using flashinfer::sampling::SamplingTempStorage;

static_assert(compat::kTakesLastValidIndex == EXPECTS_LAST_VALID_INDEX, "found another signature than expected");

// The older signature is not offered, on any header: no last_valid_index, no token where rounding leaves the mass below u.
template <typename Enable, typename... Arguments>
struct Callable : std::false_type {};
template <typename... Arguments>
struct Callable<std::void_t<decltype(compat::DeviceSamplingFromProb<1, 32, cub::BLOCK_SCAN_WARP_SCANS,
                                                                    cub::BLOCK_REDUCE_WARP_REDUCTIONS, true>(
                    std::declval<Arguments>()...))>,
                Arguments...> : std::true_type {};
using Storage = SamplingTempStorage<32, cub::BLOCK_SCAN_WARP_SCANS, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
using Any = compat::detail::AnyPredicate;
static_assert(Callable<void, uint32_t, uint32_t, Any, float, vec_t<float, 1>, float&, int&, Storage*>::value, "");
static_assert(!Callable<void, uint32_t, uint32_t, Any, float, vec_t<float, 1>, float&, Storage*>::value, "");

template <uint32_t VEC_SIZE, uint32_t BLOCK_THREADS, bool DETERMINISTIC>
__global__ void sample(const float* probs, const float* numbers, int* tokens, int* last_valid, uint32_t d) {
  constexpr auto SCAN = cub::BLOCK_SCAN_WARP_SCANS;
  constexpr auto REDUCE = cub::BLOCK_REDUCE_WARP_REDUCTIONS;
  __shared__ SamplingTempStorage<BLOCK_THREADS, SCAN, REDUCE> storage;
  const uint32_t row = blockIdx.x, tx = threadIdx.x;
  storage.sampled_id = d;
  storage.last_valid_id = -1;
  int last_valid_index = -1;
  __syncthreads();
  float aggregate = 0;
  const float u = numbers[row];
  for (uint32_t i = 0; i < ceil_div(d, BLOCK_THREADS * VEC_SIZE); ++i) {
    vec_t<float, VEC_SIZE> prob_vec;
    prob_vec.fill(0);
    const uint32_t first = (i * BLOCK_THREADS + tx) * VEC_SIZE;
    if (first < d) prob_vec.cast_load(probs + row * d + first);
    compat::DeviceSamplingFromProb<VEC_SIZE, BLOCK_THREADS, SCAN, REDUCE, DETERMINISTIC>(
        i, d, [](float x) { return x > 0; }, u, prob_vec, aggregate, last_valid_index, &storage);
    if (aggregate > u) break;
  }
  __syncthreads();
  if (tx == 0) tokens[row] = storage.sampled_id == d ? storage.last_valid_id : storage.sampled_id;
  atomicMax(last_valid + row, last_valid_index);
}

// tokens[row] for probs[rows, d] and numbers[rows]; last_valid[rows], filled with -1, gets each row's last valid
// position among the tiles looked at.
extern "C" int sample_rows(const float* probs, const float* numbers, int* tokens, int* last_valid, uint32_t rows,
                           uint32_t d, bool deterministic, cudaStream_t stream) {
  if (d % 4 == 0) {
    if (deterministic) {
      sample<4, 1024, true><<<rows, 1024, 0, stream>>>(probs, numbers, tokens, last_valid, d);
    } else {
      sample<4, 1024, false><<<rows, 1024, 0, stream>>>(probs, numbers, tokens, last_valid, d);
    }
  } else {
    sample<1, 1024, true><<<rows, 1024, 0, stream>>>(probs, numbers, tokens, last_valid, d);
  }
  return cudaGetLastError();
}

// What FlashInfer's own kernel draws for each row from a seed and an offset.
__global__ void draw(float* numbers, uint32_t rows, uint64_t seed, uint64_t offset) {
  const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  curandStatePhilox4_32_10_t state;
  curand_init(seed, row, offset, &state);
  numbers[row] = curand_uniform(&state);
}

extern "C" int draw_numbers(float* numbers, uint32_t rows, uint64_t seed, uint64_t offset, cudaStream_t stream) {
  draw<<<ceil_div(rows, 256), 256, 0, stream>>>(numbers, rows, seed, offset);
  return cudaGetLastError();
}

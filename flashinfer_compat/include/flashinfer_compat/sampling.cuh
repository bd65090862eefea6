// FlashInfer's DeviceSamplingFromProb as FlashInfer 0.7.4 declares it, on the headers of every supported release.
//
// Header-only, C++17. Put flashinfer_compat.include_dirs() before FlashInfer's own includes. Call it by its full name:
// argument-dependent lookup would find FlashInfer's as well.
#pragma once

#include <flashinfer/sampling.cuh>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace flashinfer_compat::sampling {

namespace detail {

// Whether FlashInfer's function takes `last_valid_index` before `temp_storage` (8 arguments) or not (7, up to 0.7.2.post1).
// Asked of the declaration itself: headers may be newer or older than any version that is written down somewhere.
template <typename Enable, uint32_t VEC_SIZE, uint32_t BLOCK_THREADS, cub::BlockScanAlgorithm SCAN_ALGORITHM,
          cub::BlockReduceAlgorithm REDUCE_ALGORITHM, bool DETERMINISTIC, typename Predicate>
struct TakesLastValidIndex : std::false_type {};

template <uint32_t VEC_SIZE, uint32_t BLOCK_THREADS, cub::BlockScanAlgorithm SCAN_ALGORITHM,
          cub::BlockReduceAlgorithm REDUCE_ALGORITHM, bool DETERMINISTIC, typename Predicate>
struct TakesLastValidIndex<
    std::void_t<decltype(::flashinfer::sampling::DeviceSamplingFromProb<VEC_SIZE, BLOCK_THREADS, SCAN_ALGORITHM,
                                                                        REDUCE_ALGORITHM, DETERMINISTIC>(
        uint32_t{}, uint32_t{}, std::declval<Predicate>(), float{},
        std::declval<::flashinfer::vec_t<float, VEC_SIZE>>(), std::declval<float&>(), std::declval<int&>(),
        std::declval<
            ::flashinfer::sampling::SamplingTempStorage<BLOCK_THREADS, SCAN_ALGORITHM, REDUCE_ALGORITHM>*>()))>,
    VEC_SIZE, BLOCK_THREADS, SCAN_ALGORITHM, REDUCE_ALGORITHM, DETERMINISTIC, Predicate> : std::true_type {};

struct AnyPredicate {
  __device__ bool operator()(float) const { return true; }
};

}  // namespace detail

// What was found in FlashInfer's header, for a static_assert of the caller's.
inline constexpr bool kTakesLastValidIndex =
    detail::TakesLastValidIndex<void, 1, 32, cub::BLOCK_SCAN_WARP_SCANS, cub::BLOCK_REDUCE_WARP_REDUCTIONS, true,
                                detail::AnyPredicate>::value;

// One tile of sampling by inverse transform: the block's threads take BLOCK_THREADS * VEC_SIZE probabilities.
//
//   i                 number of the tile, counted from 0 in each scan of a row
//   d                 length of the row
//   pred              which probabilities take part
//   u                 the number drawn, in (0, mass that takes part]
//   prob_vec          this thread's probabilities; zeros at and behind d
//   aggregate         mass of the tiles before this one; 0 at first, this tile's added on return
//   last_valid_index  position of this thread's last probability that took part; -1 at first
//   temp_storage      sampled_id = d and last_valid_id = -1 before the first tile of a scan, behind a __syncthreads()
//
// On return sampled_id is the first position at which the mass exceeds u, or d still. Where it is d when the scan ends
// (aggregate > u, or the last tile), last_valid_id is the last position that took part, or -1.
template <uint32_t VEC_SIZE, uint32_t BLOCK_THREADS, cub::BlockScanAlgorithm SCAN_ALGORITHM,
          cub::BlockReduceAlgorithm REDUCE_ALGORITHM, bool DETERMINISTIC, typename Predicate>
__device__ __forceinline__ void DeviceSamplingFromProb(
    uint32_t i, uint32_t d, Predicate pred, float u, ::flashinfer::vec_t<float, VEC_SIZE> prob_vec, float& aggregate,
    int& last_valid_index,
    ::flashinfer::sampling::SamplingTempStorage<BLOCK_THREADS, SCAN_ALGORITHM, REDUCE_ALGORITHM>* temp_storage) {
  if constexpr (detail::TakesLastValidIndex<void, VEC_SIZE, BLOCK_THREADS, SCAN_ALGORITHM, REDUCE_ALGORITHM,
                                            DETERMINISTIC, Predicate>::value) {
    ::flashinfer::sampling::DeviceSamplingFromProb<VEC_SIZE, BLOCK_THREADS, SCAN_ALGORITHM, REDUCE_ALGORITHM,
                                                   DETERMINISTIC>(i, d, pred, u, prob_vec, aggregate,
                                                                  last_valid_index, temp_storage);
  } else {
    // The older function keeps last_valid_id itself, tile by tile; only the thread's own record is missing.
    ::flashinfer::sampling::DeviceSamplingFromProb<VEC_SIZE, BLOCK_THREADS, SCAN_ALGORITHM, REDUCE_ALGORITHM,
                                                   DETERMINISTIC>(i, d, pred, u, prob_vec, aggregate, temp_storage);
#pragma unroll
    for (uint32_t j = 0; j < VEC_SIZE; ++j) {
      const uint32_t position = (i * BLOCK_THREADS + threadIdx.x) * VEC_SIZE + j;
      if (position < d && pred(prob_vec[j])) last_valid_index = static_cast<int>(position);
    }
  }
}

}  // namespace flashinfer_compat::sampling

"""FlashInfer 0.7.1, as it differs from 0.7.2."""

from __future__ import annotations

from ..bridges import layout, rng, thresholds
from ..bridges.names import Added, Missing, Moved
from ..bridges.rules import Convert, RefuseWhen
from . import v0_7_2

_ROW_SEEDS = RefuseWhen(
    when=rng.several,
    about=("seed per row", "offset per row"),
    since="0.7.2",
    instead="Pass one seed and one offset, or use sampling.sample_with_row_seeds, which launches once for each row.",
    note="the kernels of 0.7.1 use the first seed and the first offset for all rows (sampling.cuh)",
)

ADAPTER = v0_7_2.ADAPTER.older(
    "0.7.1",
    {
        "prefill.BatchPrefillWithPagedKVCacheWrapper.plan": Convert(
            via=layout.sequence_kv_bound,
            gives=("max_sequence_kv",),
            note="the bound, which only cuDNN reads, ends in UnboundLocalError on other backends (prefill.py)",
        ),
        "decode.get_trtllm_gen_multi_ctas_kv_counter_bytes": Moved(
            to="utils:get_trtllm_gen_multi_ctas_kv_counter_bytes", note="in decode from 0.7.2 on, always in utils"
        ),
        "sampling.sampling_from_logits": _ROW_SEEDS,
        "sampling.sampling_from_probs": _ROW_SEEDS,
        "sampling.top_p_sampling_from_probs": _ROW_SEEDS,
        "sampling.top_k_sampling_from_probs": (
            _ROW_SEEDS,
            Convert(
                via=thresholds.top_k_by_output_row,
                gives=("top_k",),
                about=("top_k with indices",),
                note="the kernel of 0.7.1 reads it by output row, past its end (sampling.cuh)",
            ),
        ),
        "sampling.min_p_sampling_from_probs": (
            _ROW_SEEDS,
            Convert(
                via=thresholds.min_p_by_output_row,
                gives=("min_p",),
                about=("min_p with indices",),
                note="the kernel of 0.7.1 reads it by output row, past its end (sampling.cuh)",
            ),
        ),
        "sampling.top_k_top_p_sampling_from_logits": _ROW_SEEDS,
        "sampling.top_k_top_p_sampling_from_probs": _ROW_SEEDS,
        "sampling.chain_speculative_sampling": _ROW_SEEDS,
        "sampling.sample_with_row_seeds": Added(
            factory=lambda: rng.sample_row_by_row, note="the whole batch once for each row, of which that row is kept"
        ),
        "sampling.softmax": Convert(
            via=thresholds.no_pdl_with_temperatures,
            gives=("enable_pdl",),
            about=("temperature per row",),
            note="without programmatic dependent launch, which 0.7.1 reads the temperatures ahead of (sampling.cuh)",
        ),
        "mla.nvfp4_sparse_mla_decode": Missing(
            since="0.7.2", instead="Dequantise the KV cache and use another decode.", note="new in 0.7.2 (mla/_core.py)"
        ),
    },
)

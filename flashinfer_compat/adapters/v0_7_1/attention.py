"""Attention before 0.7.2."""

from __future__ import annotations

from ...bridges import layout
from ...bridges.names import Missing, Moved
from ...bridges.rules import Convert
from ..model import Lines

LINES: Lines = {
    "prefill.BatchPrefillWithPagedKVCacheWrapper.plan": Convert(
        via=layout.sequence_kv_bound,
        gives=("max_sequence_kv",),
        note="the bound, which only cuDNN reads, ends in UnboundLocalError on other backends (prefill.py)",
    ),
    "decode.get_trtllm_gen_multi_ctas_kv_counter_bytes": Moved(
        to="utils:get_trtllm_gen_multi_ctas_kv_counter_bytes", note="in decode from 0.7.2 on, always in utils"
    ),
    "mla.nvfp4_sparse_mla_decode": Missing(
        since="0.7.2", instead="Dequantise the KV cache and use another decode.", note="new in 0.7.2 (mla/_core.py)"
    ),
}

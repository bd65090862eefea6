"""Attention before 0.7.2."""

from __future__ import annotations

from ...bridges import layout
from ...bridges.names import Missing, Moved
from ...bridges.rules import Convert, new
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
    "cake_fmha.select_cake_fmha_decode_route": new("0.7.2", "cake_fmha.py", multi_ctas_kv_counter_buffer=None),
    "cake_sampling.choose_stage1": new("0.7.2", "cake_sampling.py", two_launch=None),
    "cutile.is_cuda_tile_available": new("0.7.2", "cutile/cutile_common.py", device=None),
    "mla._sparse_mla_sm120._api._SparseMLAPagedAttentionRunner.__init__": new(
        "0.7.2", "mla/_sparse_mla_sm120/_api.py", backend="auto"
    ),
    "mla.cake_dsv4_workspace_layout": new("0.7.2", "mla/cake_dsv4.py", num_query_offsets=0, with_lse=False),
    "mla.get_cake_dsv4_workspace_bytes": new("0.7.2", "mla/cake_dsv4.py", kv_cache_format="fp8", extra_topk=0),
}

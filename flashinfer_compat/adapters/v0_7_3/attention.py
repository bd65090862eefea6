"""Attention before 0.7.4: strided index tensors, fp8 scales per head, windows."""

from __future__ import annotations

from ...bridges import layout, trtllm
from ...bridges.names import Missing
from ...bridges.rules import Contiguous, Convert, Emulate, Refuse, RefuseValues
from ..model import Lines

_TOKEN_HEAD_SCALES = Refuse(
    adds={"use_token_head_sf": False},
    since="0.7.4",
    instead="Use an fp8 KV cache with k_scale and v_scale of one value each.",
    note="fp8 KV scales per token and head need the kernels of 0.7.4 (prefill.cuh)",
)
_NEW_DSV4_FORMATS = RefuseValues(
    parameter="kv_cache_format",
    values={"fp8_dsv41_inline": "0.7.4", "fp8_dsv41_inline_fp4_ca": "0.7.4"},
    instead="Use fp8_dsv41 or fp8_dsv41_fp4_ca.",
    note="inline DSV4.1 KV formats are new in 0.7.4 (mla/_core.py)",
)

LINES: Lines = {
    "prefill.BatchPrefillWithPagedKVCacheWrapper.__init__": Emulate(
        adds={"max_total_num_rows": None},
        via=layout.reserve_total_num_rows,
        after=True,
        note="the capacity is set before the first plan, which fills it only while it is None",
    ),
    "prefill.BatchPrefillWithPagedKVCacheWrapper.plan": (
        Contiguous(
            parameters=("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len", "seq_lens"),
            unless="use_token_head_sf",
            note="strided index tensors were read as if dense before 0.7.4 (#5260)",
        ),
        Convert(
            via=trtllm.refuse_noncausal_paged_window,
            unless="use_token_head_sf",
            note="refused before the wrapper changes, as 0.7.4 does",
        ),
        _TOKEN_HEAD_SCALES,
    ),
    "prefill.BatchPrefillWithPagedKVCacheWrapper.workspace_size": Contiguous(
        parameters=("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len", "seq_lens"),
        note="strided index tensors were read as if dense before 0.7.4 (#5260)",
    ),
    "prefill.BatchPrefillWithRaggedKVCacheWrapper.plan": (
        Emulate(
            adds={"qo_indptr_cpu": None, "kv_indptr_cpu": None},
            via=layout.host_indptr,
            gives=("qo_indptr", "kv_indptr"),
            note="the host copies are planned with in place of the device tensors: no copy back",
        ),
        Contiguous(
            parameters=("qo_indptr", "kv_indptr"),
            unless="use_token_head_sf",
            note="strided index tensors were read as if dense before 0.7.4 (#5260)",
        ),
        _TOKEN_HEAD_SCALES,
    ),
    "prefill.single_prefill_with_kv_cache": Convert(
        via=layout.refuse_fp8_scales, note="kv_cache_sf of an fp8 KV cache means NVFP4 block scales before 0.7.4"
    ),
    "prefill.trtllm_batch_context_with_kv_cache": (
        Convert(
            via=trtllm.refuse_noncausal_window,
            where="window_left >= 0",
            unless="window_right",
            note="one error where releases raise different ones",
        ),
        Refuse(
            adds={"window_right": -1, "variable_window_token_starts": None, "variable_window_token_ends": None},
            since="0.7.4",
            instead="Pass window_left alone, causal.",
            note="right and variable windows are new in 0.7.4 (trtllm_fmha_kernel_launcher.cu)",
        ),
    ),
    "prefill.trtllm_ragged_attention_deepseek": Convert(
        via=trtllm.refuse_noncausal_ragged_window,
        note="the window was silently dropped before 0.7.4 (fmhaKernels.cuh)",
    ),
    "prefill.prepare_nvfp4_attention": Refuse(
        adds={"softmax_scale": None, "workspace": None},
        since="0.7.4",
        instead="Scale the query; the workspace is allocated inside.",
        note="new in 0.7.4 (prefill.py)",
    ),
    "decode.BatchDecodeWithPagedKVCacheWrapper.__init__": Refuse(
        adds={"jit_kwargs": None},
        since="0.7.4",
        instead="Pass what the module needs in jit_args.",
        note="keyword arguments of a custom JIT module, new in 0.7.4 (decode.py)",
    ),
    "decode.BatchDecodeWithPagedKVCacheWrapper.plan": (
        Contiguous(
            parameters=("indptr", "indices", "last_page_len", "seq_lens"),
            unless="use_token_head_sf",
            note="strided index tensors were read as if dense before 0.7.4 (#5260)",
        ),
        _TOKEN_HEAD_SCALES,
    ),
    "decode.fast_decode_plan": Contiguous(
        parameters=("indptr", "indices", "last_page_len", "global_override_indptr_cpu"),
        note="strided index tensors were read as if dense before 0.7.4 (#5260)",
    ),
    "decode.trtllm_batch_decode_with_kv_cache": Refuse(
        adds={"sparse_top_k": 0, "length_aware_schedule": False},
        since="0.7.4",
        instead="Leave them at their defaults.",
        note="sparse top-k and the length-aware schedule are new in 0.7.4 (decode.py)",
    ),
    "mla.trtllm_batch_decode_sparse_mla_dsv4": _NEW_DSV4_FORMATS,
    "attention.BatchDecodeWithAttentionSinkWrapper": Missing(
        since="0.7.4",
        instead="Use BatchAttentionWithAttentionSinkWrapper.",
        note="new in 0.7.4 (attention/_core.py)",
    ),
}

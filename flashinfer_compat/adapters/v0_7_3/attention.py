"""Attention before 0.7.4: strided index tensors, fp8 scales per head, windows."""

from __future__ import annotations

from ...bridges import layout, sinks, trtllm
from ...bridges.names import Missing
from ...bridges.rules import Contiguous, Convert, Default, Emulate, Ignore, Refuse, RefuseValues, new
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
    "attention.BatchAttentionWithAttentionSinkWrapper.run": Convert(
        via=sinks.folded,
        gives=("args", "q_scale", "k_scale"),
        about=("q_scale", "k_scale"),
        needed=sinks.left_out,
        note="folded into sm_scale, which the sink kernel reads alone before 0.7.4 (attention/_core.py)",
    ),
    "attention.BatchPrefillWithCausalBidirectionalRangesWrapper.__init__": new(
        "0.7.4", "attention/_core.py", v_sf_swizzled=False
    ),
    "cake_dcp.dcp_balanced_band": new("0.7.4", "cake_dcp.py", max_pages_per_seq=None),
    "cake_dcp.dcp_balanced_route": new("0.7.4", "cake_dcp.py", max_pages_per_seq=None),
    "cake_fmha.select_cake_fmha_decode_route": (
        Ignore(adds={"enable_pdl": None}, note="only 0.7.4 can launch it so (cake_fmha.py)"),
        new("0.7.4", "cake_fmha.py", length_aware_schedule=False),
    ),
    "cake_fused_qk_rope_append.cake_fused_qk_rmsnorm_rope_append_paged_kv_cache": Ignore(
        adds={"enable_pdl": False}, note="only 0.7.4 can launch it so"
    ),
    "cake_fused_qk_rope_fp8_append.cake_fused_qk_rmsnorm_rope_quantize_fp8_append_paged_kv_cache": Ignore(
        adds={"enable_pdl": False}, note="only 0.7.4 can launch it so"
    ),
    "cudnn.cudnn_batch_prefill_with_kv_cache": new("0.7.4", "cudnn/prefill.py", window_left=None, sinks=None),
    "mla.cake_dsv4_workspace_requirement": new("0.7.4", "mla/cake_dsv4.py", sm_count=None, arch=None),
    "mla.dsv41_fp4_quantize_append_sparse_mla_cache": new("0.7.4", "mla/_sparse_mla_sm120/_api.py", inline_scale=False),
    "mla.dsv41_fp4_quantize_pack_sparse_mla_cache": new("0.7.4", "mla/_sparse_mla_sm120/_api.py", inline_scale=False),
    "mla.dsv41_fp8_quantize_append_sparse_mla_cache": new("0.7.4", "mla/_sparse_mla_sm120/_api.py", inline_scale=False),
    "mla.dsv41_fp8_quantize_pack_sparse_mla_cache": new("0.7.4", "mla/_sparse_mla_sm120/_api.py", inline_scale=False),
    "msa_ops.msa_proxy_score": new("0.7.4", "msa_ops/proxy_score.py", use_fp32_acc=True),
    "msa_ops.msa_sparse_attention": new("0.7.4", "msa_ops/sparse_prefill.py", out=None),
    "msa_ops.prepare_msa_nvfp4_sparse_decode": new("0.7.4", "msa_ops/sparse_decode.py", use_cache_hit="auto"),
    "page.nvfp4_quantize_append_paged_kv_cache_with_slot_mapping": new("0.7.4", "page.py", nvfp4_4over6=None),
    "sm110_xqa.prepare": Default(
        parameter="kernel", default="auto", note="the one choice before 0.7.4 is called tcgen05 (sm110_xqa.py)"
    ),
    "sparse.VariableBlockSparseAttentionWrapper.plan": new(
        "0.7.4", "sparse.py", q_scale=None, k_scale=None, v_scale=None
    ),
}

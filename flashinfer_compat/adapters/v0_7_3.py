"""FlashInfer 0.7.3, inferred: it is on no index.

Stated upstream: 21 planner arguments, the verify kernel's state, the private counter helper gone. Each line here is a
feature of 0.7.4 that 0.7.2.post1 lacks; the installed signature settles whether 0.7.3 has it.
"""

from __future__ import annotations

from ..bridges import layout, scratch, thresholds, top_k_first, trtllm
from ..bridges.names import Missing
from ..bridges.rules import Contiguous, Convert, Emulate, Refuse, RefuseValues, Reroute
from ..lines import Noted
from ..support import Support
from . import v0_7_4

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
_INT32_INDICES = Convert(
    via=thresholds.int32_indices,
    gives=("indices", "widened"),
    about=("indices of int64",),
    note="with a top_k tensor int64 indices made the kernel read past its end (sampling.py, .int())",
)
_INT64_SAMPLES = Convert(
    via=thresholds.int64_samples, gives=("result",), after=True, note="and the samples have the type of the indices"
)
_SAME_DRAWS = Noted(
    parameter="deterministic across releases",
    outcome=Support.UNAVAILABLE,
    since="0.7.4",
    instead="The draws are the same; compare distributions, or run on another architecture.",
    note="0.7.4 splits a row over a cluster on SM90, whatever `deterministic` says: a token may differ where its order "
    "of summation rounds across a threshold (sampling.cuh)",
)
_STREAMS = Reroute(
    through=scratch.per_stream,
    about=("logits on several streams",),
    note="scratch for each stream and each captured call, as 0.7.4 has it (topk.py)",
)

ADAPTER = v0_7_4.ADAPTER.older(
    "0.7.3",
    {
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
        "sampling.top_p_sampling_from_probs": _SAME_DRAWS,
        "sampling.top_k_sampling_from_probs": (_INT32_INDICES, _INT64_SAMPLES, _SAME_DRAWS),
        "sampling.top_k_top_p_sampling_from_logits": (
            _INT32_INDICES,
            Reroute(
                adds={"top_k_max": None},
                through=top_k_first.from_logits,
                note="selected first where 0.7.4 does, with indices too (sampling.py, _top_k_first_fast_path)",
            ),
            _INT64_SAMPLES,
            _SAME_DRAWS,
        ),
        "sampling.top_k_top_p_sampling_from_probs": (
            _INT32_INDICES,
            Reroute(
                adds={"top_k_max": None},
                through=top_k_first.from_probs,
                note="selected first where 0.7.4 does, with indices too (sampling.py, _top_k_first_fast_path)",
            ),
            _INT64_SAMPLES,
            _SAME_DRAWS,
        ),
        "topk_varlen.topk_varlen.top_k_varlen": Noted(
            parameter="logits on several streams",
            outcome=Support.UNAVAILABLE,
            since="0.7.4",
            instead="Call it on one stream, and replay no two graphs with it at once.",
            note="the radix backends' counters are the process's, behind checks that the facade does not reach around "
            "(topk_varlen.py, _run_radix)",
        ),
        "sampling.top_k_renorm_probs": _STREAMS,
        "sampling.top_k_mask_logits": _STREAMS,
        "sampling.softmax": _STREAMS,
        "sampling.chain_speculative_sampling": Noted(
            parameter="maybe_output_accepted_token_num",
            outcome=Support.UNAVAILABLE,
            since="0.7.4",
            instead="Count with maybe_output_emitted_draft_token_num, which is right, as the tokens are.",
            note="the first rejected draft is drawn again, and may be counted: up to one too many a row (sampling.cuh)",
        ),
        "attention.BatchDecodeWithAttentionSinkWrapper": Missing(
            since="0.7.4",
            instead="Use BatchAttentionWithAttentionSinkWrapper.",
            note="new in 0.7.4 (attention/_core.py)",
        ),
    },
    inferred=True,
)

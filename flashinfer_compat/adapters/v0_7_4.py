"""FlashInfer 0.7.4, the contract's own release: what the facade adds, keeps safe, and keeps from older releases."""

from __future__ import annotations

from ..bridges import counters, decode, fast_plan, mla, planner, query_tile, rng, scratch, thresholds, trtllm
from ..bridges.classes import Extended, Follows
from ..bridges.names import Added, Moved, Retired
from ..bridges.rules import Check, Contiguous, Convert, Emulate, ForwardGiven, KeywordOnly, Reroute, SpellOut
from ..lines import Noted
from ..support import Support
from .model import Adapter

_ROWS = Check(via=thresholds.check_rows, note="indices are read unchecked by every release (csrc/sampling.cu)")
_LOGITS = Check(via=thresholds.check_rows, takes=("logits", "indices"), note=_ROWS.note)
_NUMBERS = Check(via=rng.check, note="a seed or an offset that comes alone is dropped by every release (sampling.py)")
_LOGITS_NUMBERS = Check(via=rng.check, takes=("logits", "indices", "generator", "seed", "offset"), note=_NUMBERS.note)
_TOP_K = Check(via=thresholds.check_top_k, note="a threshold's device and range are unchecked in every release")
_TOP_P = Check(via=thresholds.check_top_p, note=_TOP_K.note)
_DENSE = "strided indices and thresholds are read as if dense by every release (csrc/sampling.cu)"
_DRAWN = "drawn here by the rule of 0.7.4, so that one state gives one stream; works in CUDA-graph capture too"
_TOP_K_MAX = (
    KeywordOnly(parameters=("top_k_max",), note="at the end in 0.7.4, absent before: by keyword only"),
    Check(via=thresholds.check_top_k_max, note="a tensor would be read back, a synchronisation"),
)
_STREAMS = Reroute(
    through=scratch.per_stream,
    about=("input on several streams",),
    note="scratch for each stream: CUB's is shared in every release, top-k's counters before 0.7.4 (topk.py)",
)

ADAPTER = Adapter.newest(
    "0.7.4",
    {
        # Added by the facade.
        "prefill.raw_fa2_plan": Added(
            factory=fast_plan.raw_fa2_planner,
            note="the raw FA2 planner with named arguments, 20 or 21 as the release takes",
        ),
        "prefill.fast_prefill_plan": Added(
            factory=fast_plan.fast_prefill_planner,
            note="plan() from host tensors, without copying back or synchronising",
        ),
        "prefill.prefill_chunk_align": Added(
            factory=lambda: query_tile.prefill_chunk_align,
            note="the FA2 query tile in tokens (utils.cuh, FA2DetermineCtaTileQ)",
        ),
        "prefill.use_deterministic_backend": Added(
            factory=lambda: query_tile.use_deterministic_backend,
            note='pins an "auto" wrapper to fa2 before its first plan',
        ),
        "mla.multi_ctas_kv_counter_bytes": Added(
            factory=lambda: counters.multi_ctas_kv_counter_bytes,
            note="sized by query rows (utils.py has it by requests)",
        ),
        "mla.allocate_multi_ctas_kv_counters": Added(
            factory=lambda: counters.allocate_multi_ctas_kv_counters,
            note="a zeroed counter buffer that the caller owns",
        ),
        # Kept safe: a captured query tile stays, 20 planner arguments are completed, captured counters are kept.
        "prefill.BatchPrefillWithPagedKVCacheWrapper": Extended(
            mixin=planner.planned_wrapper, note="a plan that a captured CUDA graph could not replay is refused"
        ),
        "prefill.BatchPrefillWithRaggedKVCacheWrapper": Extended(
            mixin=planner.planned_wrapper, note="a plan that a captured CUDA graph could not replay is refused"
        ),
        "decode.BatchDecodeWithPagedKVCacheWrapper": Extended(
            mixin=decode.decode_wrapper, note="a plan that a captured CUDA graph could not replay is refused"
        ),
        "decode.CUDAGraphBatchDecodeWithPagedKVCacheWrapper": Follows(
            parent="decode.BatchDecodeWithPagedKVCacheWrapper", note="as its base class"
        ),
        "attention.BatchAttentionWithAttentionSinkWrapper": Follows(
            parent="prefill.BatchPrefillWithPagedKVCacheWrapper", note="as its base class"
        ),
        "attention.BatchPrefillWithCausalBidirectionalRangesWrapper": Follows(
            parent="prefill.BatchPrefillWithPagedKVCacheWrapper", note="as its base class"
        ),
        "attention.BatchDecodeWithAttentionSinkWrapper": Follows(
            parent="decode.BatchDecodeWithPagedKVCacheWrapper", note="as its base class"
        ),
        # Sampling: what would be read past its end is refused or made dense, and the numbers are drawn here.
        "sampling.sampling_from_logits": (
            _LOGITS,
            _LOGITS_NUMBERS,
            Contiguous(parameters=("indices",), note=_DENSE),
            Convert(via=rng.one_per_logit, gives=("seed", "offset"), about=("generator",), note=_DRAWN),
        ),
        "sampling.sampling_from_probs": (
            _ROWS,
            _NUMBERS,
            Contiguous(parameters=("indices",), note=_DENSE),
            Convert(via=rng.one_per_row, gives=("seed", "offset"), about=("generator",), note=_DRAWN),
        ),
        "sampling.top_p_sampling_from_probs": (
            _ROWS,
            _TOP_P,
            _NUMBERS,
            Contiguous(parameters=("indices", "top_p"), or_numbers=True, note=_DENSE),
            Convert(via=rng.rounds_per_row, gives=("seed", "offset"), about=("generator",), note=_DRAWN),
        ),
        "sampling.top_k_sampling_from_probs": (
            _ROWS,
            _TOP_K,
            _NUMBERS,
            Contiguous(parameters=("indices", "top_k"), or_numbers=True, note=_DENSE),
            Convert(via=rng.rounds_per_row, gives=("seed", "offset"), about=("generator",), note=_DRAWN),
        ),
        "sampling.min_p_sampling_from_probs": (
            _ROWS,
            Check(via=thresholds.check_min_p, note=_TOP_K.note),
            _NUMBERS,
            Contiguous(parameters=("indices", "min_p"), or_numbers=True, note=_DENSE),
            Convert(via=rng.one_per_row, gives=("seed", "offset"), about=("generator",), note=_DRAWN),
        ),
        "sampling.top_k_top_p_sampling_from_logits": (
            _LOGITS,
            Check(via=thresholds.check_top_k, takes=("logits", "top_k"), note=_TOP_K.note),
            Check(via=thresholds.check_top_p, takes=("logits", "top_p"), note=_TOP_K.note),
            _LOGITS_NUMBERS,
            Contiguous(parameters=("indices", "top_k", "top_p"), or_numbers=True, note=_DENSE),
            Convert(
                via=rng.rounds_per_row,
                takes=("logits", "indices", "generator", "seed", "offset"),
                gives=("seed", "offset"),
                about=("generator",),
                note=_DRAWN,
            ),
            *_TOP_K_MAX,
        ),
        "sampling.top_k_top_p_sampling_from_probs": (
            _ROWS,
            _TOP_K,
            _TOP_P,
            _NUMBERS,
            Contiguous(parameters=("indices", "top_k", "top_p"), or_numbers=True, note=_DENSE),
            Convert(via=rng.rounds_per_row, gives=("seed", "offset"), about=("generator",), note=_DRAWN),
            *_TOP_K_MAX,
        ),
        "sampling.chain_speculative_sampling": (
            Check(via=thresholds.check_drafts, note="n of draft_token_ids is unchecked in every release"),
            Check(via=rng.check_drafts, note=_NUMBERS.note),
            Convert(via=rng.two_more_than_drafts, gives=("seed", "offset"), about=("generator",), note=_DRAWN),
        ),
        "sampling.top_p_renorm_probs": (_TOP_P, Contiguous(parameters=("top_p",), or_numbers=True, note=_DENSE)),
        "sampling.top_k_renorm_probs": (_TOP_K, Contiguous(parameters=("top_k",), or_numbers=True, note=_DENSE)),
        "sampling.top_k_mask_logits": (
            Check(via=thresholds.check_top_k, takes=("logits", "top_k"), note=_TOP_K.note),
            Contiguous(parameters=("top_k",), or_numbers=True, note=_DENSE),
        ),
        "sampling.softmax": Contiguous(parameters=("temperature",), or_numbers=True, note=_DENSE),
        "sampling.sample_with_row_seeds": Added(
            factory=lambda: rng.sample_with_row_seeds,
            note="a seed for each row, also where that takes a launch for each",
        ),
        "topk.top_k": _STREAMS,
        "topk.top_k_page_table_transform": _STREAMS,
        "topk.top_k_ragged_transform": _STREAMS,
        # One calling convention where releases have several.
        "prefill.BatchPrefillWithRaggedKVCacheWrapper.plan": KeywordOnly(
            parameters=("qo_indptr_cpu", "kv_indptr_cpu", "uniform_q_len", "use_token_head_sf"),
            note="uniform_q_len is at 33 in 0.7.2.post1 and at 35 in 0.7.4: by keyword only",
        ),
        "decode.BatchDecodeWithPagedKVCacheWrapper.plan": (
            SpellOut(
                implementation="_plan_impl",
                tail=tuple(decode.POSITIONAL_TAIL),
                merge=decode.merged_tail,
                note="the opaque keywords spelled out, a positional tail checked by type",
            ),
            Convert(
                via=decode.split_size_for_cuda_cores,
                gives=("fixed_split_size",),
                where="fixed_split_size == -1",
                note="-1 means no fixed split everywhere; CUDA-core decode refuses it on every release",
            ),
        ),
        "prefill.trtllm_batch_context_with_kv_cache": Convert(
            via=trtllm.window_as_int,
            gives=("window_left",),
            where="type(window_left) is not int",
            note="integers of other types, refused from 0.7.4 on",
        ),
        # Tolerated by older releases.
        "mla.BatchMLAPagedAttentionWrapper.run": (
            ForwardGiven(needed=mla.refuses_other_rows, note="by keyword, as FlashInfer's run() wants it"),
            Convert(
                via=mla.planned_rows,
                gives=("q_nope", "q_pe", "query", "out", "lse", "padded"),
                needed=mla.refuses_other_rows,
                note="query rows beyond the FA2/FA3 plan are cut off (_fa_common.py refuses them from 0.7.4 on)",
            ),
            Convert(
                via=mla.padded_result,
                gives=("result",),
                after=True,
                needed=mla.refuses_other_rows,
                note="and the outputs keep their full size",
            ),
        ),
        # Left as they are: what differs silently, and what to do about it.
        "prefill.BatchPrefillWithPagedKVCacheWrapper.__init__": Noted(
            parameter="backend",
            outcome=Support.NATIVE,
            note='"auto" is resolved in each plan from 0.7.4 on (FA2 for short queries on SM90, cuDNN in a window on '
            "SM100), once and for all before; use_deterministic_backend pins it",
        ),
        "prefill.BatchPrefillWithRaggedKVCacheWrapper.__init__": Noted(
            parameter="backend",
            outcome=Support.NATIVE,
            note='"auto" may take cuDNN with a window or sinks on SM100 from 0.7.4 on; '
            "use_deterministic_backend pins it",
        ),
        "decode.BatchDecodeWithPagedKVCacheWrapper.__init__": Noted(
            parameter="backend",
            outcome=Support.NATIVE,
            note='"auto" may take cuDNN on SM100 from 0.7.2 on and XQA on SM90 from 0.7.4 on; pass backend="fa2", '
            "or set FLASHINFER_DECODE_AUTO_CUDNN=0",
        ),
        "decode.BatchDecodeWithPagedKVCacheWrapper.run": Noted(
            parameter="v_scale",
            outcome=Support.NATIVE,
            note="trtllm-gen scales in the kernel from 0.7.2.post1 on, the rounded output before: other last bits",
        ),
        "mla.BatchMLAPagedAttentionWrapper.__init__": Noted(
            parameter="backend",
            outcome=Support.NATIVE,
            note='"auto" takes other backends before fa2 and fa3 on SM100 and later from 0.7.2 on, which have no '
            "_cached_module; pin fa2 or fa3 for a raw fast plan",
        ),
        "mla.BatchMLAPagedAttentionWrapper.plan": Noted(
            parameter="kv_indices",
            outcome=Support.NATIVE,
            note="0.7.4 reads the range of kv_indices back, a synchronisation; pass them on the CPU, and filled",
        ),
        # Names that a supported release had.
        "mla._core._get_trtllm_gen_multi_ctas_kv_counter_buffer": Moved(
            to="utils:_get_trtllm_gen_multi_ctas_kv_counter_buffer",
            instead="flashinfer_compat.mla.allocate_multi_ctas_kv_counters and multi_ctas_kv_counter_buffer=",
            note="gone from mla._core in 0.7.3, still in utils",
        ),
        "mla._core.get_trtllm_gen_multi_ctas_kv_counter_bytes": Moved(
            to="utils:get_trtllm_gen_multi_ctas_kv_counter_bytes",
            instead="flashinfer_compat.mla.multi_ctas_kv_counter_bytes",
            note="gone from mla in 0.7.4, still in utils",
        ),
        "mla.get_trtllm_gen_multi_ctas_kv_counter_bytes": Moved(
            to="utils:get_trtllm_gen_multi_ctas_kv_counter_bytes",
            instead="flashinfer_compat.mla.multi_ctas_kv_counter_bytes",
            note="gone from mla in 0.7.4, still in utils",
        ),
        "prefill.prepare_cudnn_batch_prefill": Moved(
            to="cudnn.prefill:prepare_cudnn_batch_prefill",
            instead="flashinfer.cudnn.prefill.prepare_cudnn_batch_prefill",
            note="the re-export is gone from prefill in 0.7.4",
        ),
        "utils.determine_mla_backend": Retired(
            factory=mla.determine_mla_backend,
            instead='BatchMLAPagedAttentionWrapper(backend="auto") or an explicit backend',
            note="removed in 0.7.2",
        ),
        "prefill.prepare_nvfp4_attention": Emulate(
            adds={"causal": False},
            via=trtllm.refuse_causal_nvfp4,
            note="causal= was removed in 0.7.2; only False ever ran",
        ),
    },
)

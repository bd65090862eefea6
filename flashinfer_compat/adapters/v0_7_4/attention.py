"""Attention wrappers, planning, decode and MLA."""

from __future__ import annotations

from ...bridges import counters, decode, fast_plan, mla, planner, query_tile, trtllm
from ...bridges.classes import Extended, Follows
from ...bridges.names import Added, Moved, Retired
from ...bridges.rules import Convert, Emulate, ForwardGiven, Ignore, KeywordOnly, Renamed, SpellOut
from ...lines import Noted
from ...support import Support
from ..model import Lines

_WORKSPACE_NAMES = "renamed in 0.7.4, by keyword alone (mla)"

LINES: Lines = {
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
        note='"auto" may take cuDNN with a window or sinks on SM100 from 0.7.4 on; use_deterministic_backend pins it',
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
    "mla.gen_trtllm_gen_fmha_module": Moved(
        to="jit.attention.modules:gen_trtllm_gen_fmha_module",
        instead="flashinfer.jit.attention.modules.gen_trtllm_gen_fmha_module",
        note="the re-export is gone from mla in 0.7.4",
    ),
    "mla.setup_cubin_loader": Moved(
        to="jit.cubin_loader:setup_cubin_loader",
        instead="flashinfer.jit.cubin_loader.setup_cubin_loader",
        note="the re-export is gone from mla in 0.7.4",
    ),
    "mla.xqa_mla": Moved(
        to="xqa:xqa_mla", instead="flashinfer.xqa.xqa_mla", note="the re-export is gone from mla in 0.7.4"
    ),
    # Names of parameters.
    "mla.get_prims_ts_batch_mla_decode_workspace_size": (
        Renamed(parameter="num_qo_heads", was="num_heads", note=_WORKSPACE_NAMES),
        Renamed(parameter="max_kv_len", was="max_seq_len", note=_WORKSPACE_NAMES),
        Renamed(parameter="max_q_len", was="max_seq_len_q", note=_WORKSPACE_NAMES),
    ),
    "msa_ops.prepare_msa_nvfp4_sparse_decode": Ignore(
        adds={"workspace_buffer": None}, note="scratch of the caller's own, removed in 0.7.2: allocated inside since"
    ),
}

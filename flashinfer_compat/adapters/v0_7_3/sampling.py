"""Sampling and top-k before 0.7.4: int64 indices, the fast path with indices, scratch on several streams."""

from __future__ import annotations

from ...bridges import scratch, thresholds, top_k_first
from ...bridges.rules import Convert, Reroute
from ...lines import Noted
from ...support import Support
from ..model import Lines

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

LINES: Lines = {
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
}

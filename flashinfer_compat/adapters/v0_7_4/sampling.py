"""Sampling and top-k: what would be read past its end is refused or made dense, and the numbers are drawn here."""

from __future__ import annotations

from ...bridges import rng, scratch, thresholds
from ...bridges.names import Added
from ...bridges.rules import Check, Contiguous, Convert, KeywordOnly, Reroute
from ..model import Lines

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

LINES: Lines = {
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
}

"""Sampling before 0.7.2: one seed for all rows, thresholds read by output row."""

from __future__ import annotations

from ...bridges import rng, thresholds
from ...bridges.names import Added
from ...bridges.rules import Convert, RefuseWhen
from ..model import Lines

_ROW_SEEDS = RefuseWhen(
    when=rng.several,
    about=("seed per row", "offset per row"),
    since="0.7.2",
    instead="Pass one seed and one offset, or use sampling.sample_with_row_seeds, which launches once for each row.",
    note="the kernels of 0.7.1 use the first seed and the first offset for all rows (sampling.cuh)",
)

LINES: Lines = {
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
}

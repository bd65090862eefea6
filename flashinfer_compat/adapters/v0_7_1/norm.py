"""Norms before 0.7.2."""

from __future__ import annotations

from ...bridges import pdl
from ...bridges.rules import Convert
from ..model import Lines

_SCALE_BEFORE_WAIT = Convert(
    via=pdl.without,
    gives=("enable_pdl",),
    about=("enable_pdl",),
    note="without programmatic dependent launch, which 0.7.1 reads the scale ahead of (norm.cuh)",
)

LINES: Lines = {
    "norm.rmsnorm_quant": _SCALE_BEFORE_WAIT,
    "norm.fused_add_rmsnorm_quant": _SCALE_BEFORE_WAIT,
}

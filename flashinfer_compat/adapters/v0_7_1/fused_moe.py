"""Fused MoE before 0.7.2."""

from __future__ import annotations

from ...bridges.rules import Default, new
from ..model import Lines

LINES: Lines = {
    "fused_moe.bgmv_moe.prepare_bgmv_moe": (
        Default(parameter="backend", default="cake", note="called blackwell before 0.7.2 (fused_moe/bgmv_moe.py)"),
        new("0.7.2", "fused_moe/bgmv_moe.py", fallback=True, grouped=None, order_remap=None),
    ),
    "fused_moe.cutlass_fused_moe": new("0.7.2", "fused_moe/core.py", clamped_relu2_limit=None),
}

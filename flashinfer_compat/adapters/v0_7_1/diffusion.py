"""Kernels of diffusion models before 0.7.2."""

from __future__ import annotations

from ...bridges.rules import new
from ..model import Lines

LINES: Lines = {
    "diffusion_ops.minimax_h3_bf16_pre_attention": new(
        "0.7.2", "diffusion_ops/minimax_h3.py", qk_eps=None, rope_positions=None, workspace=None
    ),
}

"""Kernels of diffusion models before 0.7.4."""

from __future__ import annotations

from ...bridges.rules import new
from ..model import Lines

LINES: Lines = {
    "cake_minimax_h3.MiniMaxH3Nvfp4PreAttention.__init__": new(
        "0.7.4", "cake_minimax_h3.py", out_format="nvfp4", qkv_scales=None
    ),
    "cake_minimax_h3.MiniMaxH3Nvfp4PreAttention.run": new("0.7.4", "cake_minimax_h3.py", qkv_scales=None),
    "diffusion_ops.cake_minimax_h3_sm120_nvfp4_varlen_attention.minimax_h3_sm120_varlen_attention_nvfp4": new(
        "0.7.4", "diffusion_ops/cake_minimax_h3_sm120_nvfp4_varlen_attention.py", pv_mode="fp4"
    ),
}

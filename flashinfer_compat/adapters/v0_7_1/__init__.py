"""FlashInfer 0.7.1, as it differs from 0.7.2."""

from __future__ import annotations

from .. import v0_7_2
from . import attention, comm, diffusion, fused_moe, gemm, linear_attention, moe_ep, norm, sampling

ADAPTER = v0_7_2.ADAPTER.older(
    "0.7.1",
    attention.LINES,
    comm.LINES,
    diffusion.LINES,
    fused_moe.LINES,
    gemm.LINES,
    linear_attention.LINES,
    moe_ep.LINES,
    norm.LINES,
    sampling.LINES,
)

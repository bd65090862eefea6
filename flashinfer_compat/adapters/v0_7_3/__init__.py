"""FlashInfer 0.7.3, inferred: it is on no index.

Stated upstream: 21 planner arguments, the verify kernel's state, the private counter helper gone. Each line here is a
feature of 0.7.4 that 0.7.2.post1 lacks; the installed signature settles whether 0.7.3 has it.
"""

from __future__ import annotations

from .. import v0_7_4
from . import (
    attention,
    autotuner,
    comm,
    diffusion,
    fused_moe,
    gemm,
    linear_attention,
    moe_ep,
    norm,
    quantization,
    sampling,
)

ADAPTER = v0_7_4.ADAPTER.older(
    "0.7.3",
    attention.LINES,
    autotuner.LINES,
    comm.LINES,
    diffusion.LINES,
    fused_moe.LINES,
    gemm.LINES,
    linear_attention.LINES,
    moe_ep.LINES,
    norm.LINES,
    quantization.LINES,
    sampling.LINES,
    inferred=True,
)

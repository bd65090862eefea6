"""FlashInfer 0.7.2, as it differs from 0.7.2.post1: plan(uniform_q_len=) is there in C++ alone (#6144)."""

from __future__ import annotations

from .. import v0_7_2_post1
from . import attention, comm, fused_moe, gemm, linear_attention, norm, quantization

ADAPTER = v0_7_2_post1.ADAPTER.older(
    "0.7.2",
    attention.LINES,
    comm.LINES,
    fused_moe.LINES,
    gemm.LINES,
    linear_attention.LINES,
    norm.LINES,
    quantization.LINES,
)

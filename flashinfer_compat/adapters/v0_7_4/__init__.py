"""FlashInfer 0.7.4, the contract's own release: what the facade adds, keeps safe, and keeps from older releases."""

from __future__ import annotations

from ..model import Adapter
from . import attention, comm, fused_moe, gemm, moe_ep, sampling

ADAPTER = Adapter.newest(
    "0.7.4", attention.LINES, comm.LINES, fused_moe.LINES, gemm.LINES, moe_ep.LINES, sampling.LINES
)

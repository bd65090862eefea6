"""Fused MoE."""

from __future__ import annotations

from ...bridges import moe
from ...bridges.names import Added
from ..model import Lines

LINES: Lines = {
    "fused_moe.batch_invariant_finalize": Added(
        factory=lambda: moe.batch_invariant_finalize,
        needed=moe.finalize_depends_on_batch,
        note="do_finalize=False and a sum in a fixed order: the trtllm-gen finalize of 0.7.2.post1 and later adds few "
        "tokens' experts in another order than many (#6546, trtllm_fused_moe_dev_kernel.cu)",
    ),
}

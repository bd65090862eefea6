"""Communication before 0.7.3."""

from __future__ import annotations

from ...bridges import moe_alltoall
from ...bridges.rules import Convert
from ..model import Lines

_PINNED = "the combine region stays where it is, at the end of the workspace (csrc/trtllm_moe_alltoall.cu)"

LINES: Lines = {
    "comm.trtllm_moe_alltoall.MoeAlltoAll.__init__": Convert(
        via=moe_alltoall.keep_combine_bytes, after=True, note=_PINNED
    ),
    "comm.trtllm_moe_alltoall.MoeAlltoAll.dispatch": (
        Convert(
            via=moe_alltoall.routable,
            gives=("token_selected_experts",),
            note="expert ids out of range are not routed by (moeAlltoAllKernels.cu)",
        ),
        Convert(via=moe_alltoall.pin_combine_region, after=True, note=_PINNED),
    ),
    "comm.trtllm_moe_alltoall.moe_a2a_get_workspace_size_per_rank": Convert(
        via=moe_alltoall.sized,
        takes=(
            "result",
            "ep_size",
            "max_num_tokens",
            "total_dispatch_payload_size_per_token",
            "combine_payload_size_per_token",
        ),
        gives=("result",),
        after=True,
        note="a number that remembers what of it is for combine, which is pinned",
    ),
}

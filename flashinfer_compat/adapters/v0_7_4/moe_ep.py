"""Expert-parallel layers."""

from __future__ import annotations

from ...bridges import expert_parallel
from ...bridges.rules import Convert, KeywordOnly, Renamed
from ..model import Lines

_ROUND_SIZE = Renamed(
    parameter="runtime_max_tokens_per_rank", was="max_tokens_per_rank", note="renamed in 0.7.3 (moe_ep/core/comm)"
)

LINES: Lines = {
    "moe_ep.create_communication": Convert(
        via=expert_parallel.of_the_facade,
        takes=("result",),
        gives=("result",),
        after=True,
        note="what it makes is of the facade's classes, whose dispatch takes both names",
    ),
    "moe_ep.NVLinkOneSidedAlltoAll.dispatch": _ROUND_SIZE,
    "moe_ep.NVLinkTwoSidedAlltoAll.dispatch": _ROUND_SIZE,
    "moe_ep.CakeAlltoAll.dispatch": _ROUND_SIZE,
    "moe_ep.MoEEpTensors.__init__": KeywordOnly(
        parameters=(
            "fc1_activation_per_token_scale",
            "recv_count",
            "num_tokens_per_expert",
            "output",
            "runtime_max_tokens_per_rank",
        ),
        note="0.7.4 puts fc1_activation_per_token_scale in front of recv_count: by keyword only",
    ),
}

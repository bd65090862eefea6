"""Expert-parallel layers."""

from __future__ import annotations

from ...bridges import communication
from ...bridges.classes import Extended
from ...bridges.names import Replaced
from ...bridges.rules import KeywordOnly
from ..model import Lines

_ROUNDS = (
    "dispatch(max_tokens_per_rank=) until 0.7.2.post1 is taken too; rounds keep the rules of 0.7.4 on every release"
)

LINES: Lines = {
    "moe_ep.CakeAlltoAll": Extended(mixin=communication.one_sided, note=_ROUNDS),
    "moe_ep.NVLinkOneSidedAlltoAll": Extended(mixin=communication.one_sided, note=_ROUNDS),
    "moe_ep.NVLinkTwoSidedAlltoAll": Extended(mixin=communication.two_sided, note=_ROUNDS),
    "moe_ep.create_communication": Replaced(
        factory=communication.creating, note="FlashInfer's own makes classes of FlashInfer's registry, not the facade's"
    ),
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

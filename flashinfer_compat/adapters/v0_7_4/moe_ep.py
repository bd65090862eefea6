"""Expert-parallel layers."""

from __future__ import annotations

from ...bridges.rules import KeywordOnly
from ..model import Lines

LINES: Lines = {
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

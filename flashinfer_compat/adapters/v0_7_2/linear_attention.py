"""Linear attention (gdn, kda, mamba) before 0.7.2.post1."""

from __future__ import annotations

from ...bridges.rules import new_values
from ..model import Lines

LINES: Lines = {
    "gdn_decode.gated_delta_rule_decode_pretranspose": new_values("0.7.2.post1", "gdn_decode.py", backend=("rubin",)),
}

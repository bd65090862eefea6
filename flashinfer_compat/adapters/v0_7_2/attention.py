"""Attention before 0.7.2.post1: the verify hint."""

from __future__ import annotations

from ...bridges import planner
from ...bridges.rules import Keep, Reroute
from ..model import Lines

_HINT = Keep(
    adds={"uniform_q_len": None},
    target="self._compat_tile.requested",
    note="set as the raw planner's argument 19, with the validation of 0.7.2.post1 (#6144)",
)

LINES: Lines = {
    "prefill.BatchPrefillWithPagedKVCacheWrapper.plan": _HINT,
    "prefill.BatchPrefillWithRaggedKVCacheWrapper.plan": _HINT,
    "prefill.BatchPrefillWithPagedKVCacheWrapper.workspace_size": Reroute(
        adds={"uniform_q_len": None},
        through=planner.sized_with_hint,
        note="set as argument 17 of the raw size query",
    ),
}

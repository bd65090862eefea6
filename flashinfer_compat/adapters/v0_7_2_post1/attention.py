"""Attention before 0.7.3."""

from __future__ import annotations

from ...bridges.rules import RefuseValues
from ...lines import Noted
from ...support import Support
from ..model import Lines

LINES: Lines = {
    "prefill.raw_fa2_plan": Noted(
        parameter="fixed_uniform_q_len",
        outcome=Support.IGNORED,
        note="the planner takes it from 0.7.3 on; before, split KV may be merged where it need not be split",
    ),
    "mla.BatchMLAPagedAttentionWrapper.__init__": RefuseValues(
        parameter="backend",
        values={"autotune": "0.7.4", "cute-dsl-rubin-mtp": "0.7.4"},
        instead='Use backend="auto" or one of the release\'s own.',
        note="backends new in 0.7.4 (mla/_batch_mla/_wrapper.py)",
    ),
}

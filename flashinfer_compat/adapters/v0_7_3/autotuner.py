"""The autotuner before 0.7.4."""

from __future__ import annotations

from ...bridges.rules import new
from ..model import Lines

LINES: Lines = {
    "autotuner.autotune": new("0.7.4", "autotuner/autotuner.py", tie_tolerance=None),
    "autotune_v2": new("0.7.4", "autotune_cache.py", cache_scope="process", replay_report=None, strict_replay=False),
}

"""The limits that CI holds the facade to: ratios that a CPU can measure, each within one run.

A ratio moves with the machine and its load, so the margin is wide, and a benchmark that is beyond it is measured again
before the gate fails. That a name which needs no adaptation is FlashInfer's own object, and so costs nothing, is not a
matter of time: tests/contract/test_namespace.py holds that of every name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .results import Change, Key, Results, changes, ratios

#: Times the usual ratio. In ten runs beside two busy loops, on two cores, no ratio was above 1.25 times its usual one.
MARGIN = 1.5
ATTEMPTS = 3
#: The usual ratio on FlashInfer 0.7.4 and Python 3.11, the median of several runs on two cores of a shared machine.
USUAL: dict[Key, float] = {
    ("call_overhead", "call", "adapted"): 1.9,
    ("call_overhead", "call", "facade module's attribute, then direct"): 2.6,
    ("import_time", "cpu time", "flashinfer_compat"): 0.016,
    ("import_time", "cpu time", "flashinfer under patch()"): 1.01,
    ("audit_speed", "80 files; CPU", "audit"): 4.5,
    ("plan_cpu", "paged, graph", "facade"): 1.08,
    ("plan_cpu", "paged, graph, hint", "facade, hint"): 1.06,
    ("plan_cpu", "ragged, eager", "facade"): 1.16,
    ("plan_cpu", "decode, graph", "facade"): 1.12,
    ("plan_cpu", "fast plan", "fast_prefill_plan, hint"): 0.385,
}


@dataclass(frozen=True)
class Verdict:
    """What each attempt measured, and what was beyond the margin in all of them."""

    attempts: list[Results]
    over: list[Change]


def hold(measured: Callable[[list[str]], Results]) -> Verdict:
    """Measure, and measure again what is beyond the margin, `ATTEMPTS` times at most."""
    attempts: list[Results] = []
    over = [Change(key, usual, None) for key, usual in USUAL.items()]
    while over and len(attempts) < ATTEMPTS:
        attempts.append(measured(sorted({change.key[0] for change in over})))
        suspects = {change.key: USUAL[change.key] for change in over}
        over = [change for change in changes(suspects, ratios(attempts[-1].document()), MARGIN) if change.worse]
    return Verdict(attempts, over)

"""A case run: the facade's answer beside what it must be, and how long it took."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import torch

from ..features import explain, supports
from ..support import Support
from . import timing
from .case import Case, Measure
from .library import FACADE, NATIVE


class Outcome(str, Enum):
    """What became of a case."""

    RIGHT = "right"
    WRONG = "wrong"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class Result:
    """`error` is by `measure`, None where there is none or it is not a number; times are microseconds of a call.

    `support` is the worst outcome of the case's features; `reason` says why a case is unavailable or failed.
    """

    case: str
    features: tuple[str, ...]
    support: str
    dtype: str
    measure: str
    error: float | None
    tolerance: float
    outcome: Outcome
    facade_us: float | None = None
    native_us: float | None = None
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "features": list(self.features), "outcome": str(self.outcome)}


def run(case: Case, seed: int, device: torch.device, *, native: bool) -> Result:
    """Run `case` with the inputs of `seed`; with `native` FlashInfer's own call is timed too, where it exists.

    Nothing is raised: what goes wrong is the result's `reason`.
    """

    def result(outcome: Outcome, **found: Any) -> Result:
        return Result(
            case=case.name,
            features=case.features,
            support=str(worst_support(case)),
            dtype=str(case.dtype).removeprefix("torch."),
            measure=str(case.measure),
            tolerance=case.tolerance,
            outcome=outcome,
            **{"error": None, **found},
        )

    reason = unavailable(case)
    if reason:
        return result(Outcome.UNAVAILABLE, reason=reason)
    try:
        error = error_of(case, seed, device)
        facade_us, native_us = _timed(case, seed, device, native)
    except Exception as raised:
        return result(Outcome.FAILED, reason=f"{type(raised).__name__}: {raised}")
    outcome = Outcome.RIGHT if case.measure.accepts(error, case.tolerance) else Outcome.WRONG
    told = error if math.isfinite(error) else None
    return result(outcome, error=told, facade_us=facade_us, native_us=native_us)


def unavailable(case: Case) -> str:
    """Why the installed release cannot do `case`; empty where it can."""
    for feature in case.features:
        found = supports(feature)
        # An ignored hint leaves the result as it is, but promises no bits.
        promised = found is not Support.IGNORED or case.measure is not Measure.DIFFERING
        if found is Support.UNAVAILABLE or not promised:
            return explain(feature)
    return ""


def worst_support(case: Case) -> Support:
    """Of the four outcomes the one that says least."""
    return max((supports(feature) for feature in case.features), key=list(Support).index)


def error_of(case: Case, seed: int, device: torch.device) -> float:
    """How far the facade's answer is from what it must be."""
    got = case.workload.prepare(case.draw(seed, device), FACADE).run()
    return case.measure.of(got, case.workload.expected(case.draw(seed, device)))


def _timed(case: Case, seed: int, device: torch.device, native: bool) -> tuple[float, float | None]:
    calls: dict[str, Callable[[], Any]] = {"facade": case.workload.prepare(case.draw(seed, device), FACADE).run}
    if native and case.native and (own := _native_call(case, seed, device)):
        calls["native"] = own
    taken = timing.medians(calls, device)
    return taken["facade"], taken.get("native")


def _native_call(case: Case, seed: int, device: torch.device) -> Callable[[], Any] | None:
    """FlashInfer's own call of the case; None where this release has no such call."""
    try:
        operation = case.workload.prepare(case.draw(seed, device), NATIVE)
        operation.run()
    except Exception:
        return None
    return operation.run

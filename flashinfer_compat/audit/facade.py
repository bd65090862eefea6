"""What the facade makes of a finding: the adapters' lines about its symbol."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ..doctor.tables import TableLine, lines
from ..surfaces.model import PACKAGE
from . import findings
from .findings import Code, Effect, Outcome


@cache
def _by_key() -> Mapping[str, list[TableLine]]:
    found: dict[str, list[TableLine]] = {}
    for line in lines():
        found.setdefault(line.key, []).append(line)
    return found


def answer(code: Code, symbol: str, outcomes: Mapping[str, Outcome], surfaces_name: str) -> str:
    """One sentence: emulated, ignored or unavailable through the facade, with the table's note; "" where none knows."""
    if code in (findings.VERSION_TEXT, findings.POST_RELEASE):
        return "Ask flashinfer_compat.supports(feature) instead of the release."
    if code is findings.RAW_ARITY:
        return "Emulated: flashinfer_compat's wrappers take and pass the planner arguments of each release."
    why = " ".join(outcome.why for outcome in outcomes.values() if outcome.effect > Effect.NOT_REACHED)
    for name in dict.fromkeys((symbol, surfaces_name)):
        key = name.removeprefix(f"{PACKAGE}.")
        for candidate in (key, f"{key}.__init__"):
            for line in _by_key().get(candidate, ()):
                if not line.adds or any(added in why for added in line.adds):
                    said = line.instead or line.note
                    return f"{line.outcome.capitalize()} by flashinfer_compat" + (f": {said}" if said else ".")
    return ""

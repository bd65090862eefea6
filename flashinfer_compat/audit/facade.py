"""What the facade makes of a finding: the adapters' lines about its symbol."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache

from ..doctor.tables import TableLine, lines
from ..headers import include_dirs
from ..surfaces.model import PACKAGE, Surface
from . import findings
from .findings import Effect, Finding


@cache
def _by_key() -> Mapping[str, list[TableLine]]:
    found: dict[str, list[TableLine]] = {}
    for line in lines():
        found.setdefault(line.key, []).append(line)
    return found


def answer(finding: Finding, surfaces: Collection[Surface]) -> str:
    """One sentence: emulated, ignored or unavailable through the facade, with the table's note; "" where none knows."""
    code = finding.code
    if code in (findings.VERSION_TEXT, findings.POST_RELEASE):
        return "Ask flashinfer_compat.supports(feature) instead of the release."
    if code is findings.RAW_ARITY:
        return "Emulated: flashinfer_compat's wrappers take and pass the planner arguments of each release."
    if code is findings.TEMPLATE:
        header = _header(finding.symbol)
        return f"Emulated by flashinfer_compat: include <{header}> from include_dirs()." if header else ""
    why = " ".join(outcome.why for outcome in finding.outcomes.values() if outcome.effect > Effect.NOT_REACHED)
    for key in _keys(finding, surfaces):
        for line in _by_key().get(key, ()):
            if not line.adds or any(added in why for added in line.adds):
                said = line.instead or line.note
                return f"{line.outcome.capitalize()} by flashinfer_compat" + (f": {said}" if said else ".")
    return ""


def _keys(finding: Finding, surfaces: Collection[Surface]) -> Iterator[str]:
    """How the tables may name the symbol: as it is used, as it is defined, as a class that inherits it has it."""
    for name in dict.fromkeys((finding.symbol, finding.defined)):
        key = name.removeprefix(f"{PACKAGE}.")
        yield key
        yield f"{key}.__init__"
    holder, _, method = finding.defined.rpartition(".")
    for key in _by_key():
        derived, _, name = key.rpartition(".")
        if name == method and any(holder in _bases(surface, derived) for surface in surfaces):
            yield key


def _bases(surface: Surface, name: str) -> list[str]:
    pending, found = [surface.find(name)], []
    while pending:
        one = pending.pop()
        if one is not None and one.dotted not in found:
            found.append(one.dotted)
            pending += surface.bases(one)
    return found


@cache
def _header(template: str) -> str:
    """This package's header that has a template of that name."""
    for directory in include_dirs():
        for path in sorted(directory.rglob("*.cuh")):
            if f"{template}(" in path.read_text(encoding="utf-8"):
                return path.relative_to(directory).as_posix()
    return ""

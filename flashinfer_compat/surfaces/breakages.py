"""What can become of a symbol between two releases: small values that say it in a sentence.

Each kind knows its severity by its effect on a caller written for the older release.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, ClassVar


class Severity(IntEnum):
    """The effect on code written for the older release."""

    NONE = 0  #: it runs as before
    MEANING = 1  #: it runs, perhaps with another result
    SOME_CALLS = 2  #: calls that pass the argument concerned, or pass it this way, fail or bind it to another parameter
    EVERY_USE = 3  #: every import, call or compilation fails

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, kw_only=True)
class Breakage:
    """One difference of `symbol`, a dotted name, a C++ ``file:function`` or a distribution."""

    symbol: str
    severity: ClassVar[Severity] = Severity.SOME_CALLS
    #: Whether a release that was concluded from its neighbours really differs so: known, inferred or unknown.
    provenance: str = "known"

    @property
    def kind(self) -> str:
        return type(self).__name__

    def sentence(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        doubt = "" if self.provenance == "known" else f" ({self.provenance})"
        return f"{self.symbol}: {self.sentence()}{doubt}"

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"kind": self.kind, "severity": str(self.severity), "sentence": self.sentence(), **asdict(self)}


# Names


@dataclass(frozen=True, kw_only=True)
class Added(Breakage):
    severity = Severity.NONE
    what: str

    def sentence(self) -> str:
        return f"{self.what} added"


@dataclass(frozen=True, kw_only=True)
class Removed(Breakage):
    severity = Severity.EVERY_USE
    what: str

    def sentence(self) -> str:
        return f"{self.what} removed"


@dataclass(frozen=True, kw_only=True)
class Moved(Breakage):
    """Gone from here, and the same thing is found under the same name elsewhere."""

    severity = Severity.EVERY_USE
    to: str

    def sentence(self) -> str:
        return f"moved to {self.to}"


@dataclass(frozen=True, kw_only=True)
class Renamed(Breakage):
    """Gone from here, and one of the same signature is new beside it."""

    severity = Severity.EVERY_USE
    to: str

    def sentence(self) -> str:
        return f"renamed to {self.to}"


@dataclass(frozen=True, kw_only=True)
class DefinedElsewhere(Breakage):
    """The name stays, its definition is in another module: pickles and identity checks on the module notice."""

    severity = Severity.NONE
    old: str
    new: str

    def sentence(self) -> str:
        return f"defined in {self.new} instead of {self.old}"


@dataclass(frozen=True, kw_only=True)
class WhatChanged(Breakage):
    severity = Severity.EVERY_USE
    old: str
    new: str

    def sentence(self) -> str:
        return f"a {self.new} instead of a {self.old}"


@dataclass(frozen=True, kw_only=True)
class ValueChanged(Breakage):
    severity = Severity.MEANING
    old: str | None
    new: str | None

    def sentence(self) -> str:
        return f"value {self.new} instead of {self.old}"


@dataclass(frozen=True, kw_only=True)
class BaseRemoved(Breakage):
    severity = Severity.SOME_CALLS
    base: str

    def sentence(self) -> str:
        return f"no subclass of {self.base} any more"


# Parameters


@dataclass(frozen=True, kw_only=True)
class ParameterBreakage(Breakage):
    parameter: str


@dataclass(frozen=True, kw_only=True)
class ParameterAdded(ParameterBreakage):
    """Optional, and at the end or by keyword only: no older call notices."""

    severity = Severity.NONE
    default: str | None

    def sentence(self) -> str:
        return f"parameter {self.parameter} added" + (f", default {self.default}" if self.default else "")


@dataclass(frozen=True, kw_only=True)
class ParameterInserted(ParameterBreakage):
    """Optional, but in front of older ones: positional calls past it bind differently."""

    severity = Severity.SOME_CALLS
    before: str

    def sentence(self) -> str:
        return f"parameter {self.parameter} inserted before {self.before}"


@dataclass(frozen=True, kw_only=True)
class ParameterAddedRequired(ParameterBreakage):
    severity = Severity.EVERY_USE

    def sentence(self) -> str:
        return f"required parameter {self.parameter} added"


@dataclass(frozen=True, kw_only=True)
class ParameterRemoved(ParameterBreakage):
    severity = Severity.SOME_CALLS

    def sentence(self) -> str:
        return f"parameter {self.parameter} removed"


@dataclass(frozen=True, kw_only=True)
class ParameterRenamed(ParameterBreakage):
    """`alias` where a decorator still takes the old keyword."""

    to: str
    alias: bool = False

    @property
    def severity(self) -> Severity:  # type: ignore[override]
        return Severity.NONE if self.alias else Severity.SOME_CALLS

    def sentence(self) -> str:
        kept = ", the old keyword is still taken" if self.alias else ""
        return f"parameter {self.parameter} renamed to {self.to}{kept}"


@dataclass(frozen=True, kw_only=True)
class ParameterReordered(ParameterBreakage):
    old: int
    new: int

    def sentence(self) -> str:
        return f"parameter {self.parameter} at position {self.new} instead of {self.old}"


@dataclass(frozen=True, kw_only=True)
class BecameKeywordOnly(ParameterBreakage):
    def sentence(self) -> str:
        return f"parameter {self.parameter} by keyword only"


@dataclass(frozen=True, kw_only=True)
class BecamePositionalOnly(ParameterBreakage):
    def sentence(self) -> str:
        return f"parameter {self.parameter} by position only"


@dataclass(frozen=True, kw_only=True)
class BecamePositional(ParameterBreakage):
    """By keyword only before: nothing that was written can notice."""

    severity = Severity.NONE

    def sentence(self) -> str:
        return f"parameter {self.parameter} also by position"


@dataclass(frozen=True, kw_only=True)
class BecameRequired(ParameterBreakage):
    def sentence(self) -> str:
        return f"parameter {self.parameter} has no default any more"


@dataclass(frozen=True, kw_only=True)
class BecameOptional(ParameterBreakage):
    severity = Severity.NONE
    default: str

    def sentence(self) -> str:
        return f"parameter {self.parameter} has a default now, {self.default}"


@dataclass(frozen=True, kw_only=True)
class ParameterAbsorbed(ParameterBreakage):
    """No longer spelled out; ``*args`` and ``**kwargs`` still take it."""

    severity = Severity.NONE

    def sentence(self) -> str:
        return f"parameter {self.parameter} left to *args and **kwargs"


@dataclass(frozen=True, kw_only=True)
class DefaultChanged(ParameterBreakage):
    severity = Severity.MEANING
    old: str
    new: str

    def sentence(self) -> str:
        return f"parameter {self.parameter} defaults to {self.new} instead of {self.old}"


@dataclass(frozen=True, kw_only=True)
class AnnotationChanged(ParameterBreakage):
    """Of a parameter, of the result where `parameter` is ``return``, of a value where it is empty."""

    severity = Severity.NONE
    old: str | None
    new: str | None

    def sentence(self) -> str:
        where = {"return": "result", "": "value"}.get(self.parameter, f"parameter {self.parameter}")
        return f"{where} annotated {self.new or 'no more'} instead of {self.old or 'not at all'}"


@dataclass(frozen=True, kw_only=True)
class ValuesAdded(ParameterBreakage):
    """Values that a ``Literal`` annotation lists from now on."""

    severity = Severity.NONE
    values: tuple[str, ...]

    def sentence(self) -> str:
        return f"parameter {self.parameter} also takes {', '.join(self.values)}"


@dataclass(frozen=True, kw_only=True)
class ValuesRemoved(ParameterBreakage):
    values: tuple[str, ...]

    def sentence(self) -> str:
        return f"parameter {self.parameter} no longer takes {', '.join(self.values)}"


@dataclass(frozen=True, kw_only=True)
class KeywordsNoLongerTaken(ParameterBreakage):
    """A keyword that only a decorator took."""

    def sentence(self) -> str:
        return f"deprecated keyword {self.parameter} no longer taken"


# C++


@dataclass(frozen=True, kw_only=True)
class ArityChanged(Breakage):
    """TVM-FFI checks the number of arguments of every call, and applies no C++ default."""

    severity = Severity.EVERY_USE
    old: int
    new: int

    def sentence(self) -> str:
        return f"takes {self.new} arguments instead of {self.old}"


@dataclass(frozen=True, kw_only=True)
class ArgumentsChanged(Breakage):
    severity = Severity.MEANING
    old: tuple[str, ...]
    new: tuple[str, ...]

    def sentence(self) -> str:
        changed = [f"{new!r} instead of {old!r}" for old, new in zip(self.old, self.new, strict=True) if old != new]
        return "argument " + ", ".join(changed)


@dataclass(frozen=True, kw_only=True)
class TemplateChanged(Breakage):
    severity = Severity.EVERY_USE
    old: str
    new: str

    def sentence(self) -> str:
        return f"{self.new} instead of {self.old}"


# Metadata


@dataclass(frozen=True, kw_only=True)
class RequirementChanged(Breakage):
    severity = Severity.SOME_CALLS
    old: str
    new: str

    def sentence(self) -> str:
        return f"required as {self.new or 'any version'} instead of {self.old or 'any version'}"


@dataclass(frozen=True, kw_only=True)
class FloorRaised(RequirementChanged):
    pass


@dataclass(frozen=True, kw_only=True)
class RequirementAdded(Breakage):
    severity = Severity.SOME_CALLS
    version: str

    def sentence(self) -> str:
        return f"newly required, {self.version or 'any version'}"


@dataclass(frozen=True, kw_only=True)
class RequirementDropped(Breakage):
    severity = Severity.SOME_CALLS
    version: str

    def sentence(self) -> str:
        return f"no longer required ({self.version or 'any version'} before)"

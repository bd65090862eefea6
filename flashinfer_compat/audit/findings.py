"""What an audit says: findings, with an outcome for each release."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Effect(IntEnum):
    """What happens at a use on a release, the better first."""

    WORKS = 0
    NOT_REACHED = 1  #: a guard leads elsewhere, as on the release that the source is written for
    NOT_KNOWN = 2  #: the release is on no index, and its neighbours differ
    CHANGED = 3  #: it runs, perhaps with another result
    ALTERNATIVE = 4  #: a guard leads to another path written for that
    OFF = 5  #: a guard turns the feature off, silently
    LATER = 6  #: the guard passes, and an error comes where the name is used
    BREAKS = 7  #: an error here

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def is_failure(self) -> bool:
        """Whether it makes the audit fail."""
        return self >= Effect.OFF


@dataclass(frozen=True)
class Outcome:
    """The effect on one release, and why."""

    effect: Effect
    why: str = ""

    def __str__(self) -> str:
        return f"{self.effect}: {self.why}" if self.why else str(self.effect)


WORKS = Outcome(Effect.WORKS)


@dataclass(frozen=True)
class Code:
    """A kind of finding."""

    code: str
    title: str
    explanation: str


@dataclass(frozen=True)
class Finding:
    """A use of FlashInfer that does not mean the same on every audited release.

    `facade`: what the facade makes of it on the releases concerned. `line` counts from 1, `column` from 1.
    """

    code: Code
    path: str
    line: int
    column: int
    symbol: str
    outcomes: Mapping[str, Outcome]
    facade: str = ""
    #: Where FlashInfer defines the symbol, which is how the adapters' tables name it.
    defined: str = ""
    guard: str = ""

    @property
    def worst(self) -> Effect:
        return max((outcome.effect for outcome in self.outcomes.values()), default=Effect.WORKS)

    def fails_on(self, release: str, *, facade: bool = False) -> bool:
        """Whether it breaks, is off or fails later on a release; with the facade, whether that does not mend it."""
        return release in self.outcomes and self.outcomes[release].effect.is_failure and not (facade and self.mended)

    @property
    def mended(self) -> bool:
        """Whether the facade makes it work."""
        return self.facade.startswith(("Emulated", "Ignored", "Native"))

    @property
    def fingerprint(self) -> str:
        """The same for the same use when lines above it move: of the code, the file's end of the path, the symbol."""
        effects = sorted((release, str(outcome.effect)) for release, outcome in self.outcomes.items())
        text = repr((self.code.code, self.path.replace("\\", "/").split("/")[-3:], self.symbol, effects))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def sentence(self) -> str:
        """The symbol, what happens on which releases, and the facade's answer."""
        by_outcome: dict[str, list[str]] = {}
        for release, outcome in self.outcomes.items():
            if outcome.effect > Effect.NOT_REACHED:
                by_outcome.setdefault(str(outcome), []).append(release)
        told = "; ".join(f"on {', '.join(releases)} {outcome}" for outcome, releases in by_outcome.items())
        return f"{self.symbol}: {told}." + (f" {self.facade}" if self.facade else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code.code,
            "title": self.code.title,
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "symbol": self.symbol,
            "effect": str(self.worst),
            "guarded": bool(self.guard),
            "guard": self.guard,
            "outcomes": {
                release: {"effect": str(outcome.effect), "why": outcome.why}
                for release, outcome in self.outcomes.items()
            },
            "facade": self.facade,
            "fingerprint": self.fingerprint,
        }


@dataclass(frozen=True)
class Unresolved:
    """A use of which it cannot be said what it comes to: somebody has to look."""

    path: str
    line: int
    column: int
    symbol: str
    why: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "symbol": self.symbol,
            "why": self.why,
        }


MISSING_NAME = Code("FIC001", "name missing", "An import or attribute of FlashInfer's that a release does not have.")
PROBE = Code("FIC002", "feature turned off", "A question about FlashInfer, answered No on a release.")
UNKNOWN_KEYWORD = Code("FIC101", "unknown keyword", "A keyword that a release's function does not take.")
TOO_MANY = Code("FIC102", "too many positional arguments", "More positional arguments than a release's function takes.")
REQUIRED = Code("FIC103", "required argument not passed", "A parameter without a default on a release, left out.")
SHIFT = Code("FIC104", "positional shift", "A positional argument that a release binds to another parameter.")
DEFAULT = Code("FIC105", "default changed", "A default that the call relies on and that a release changed.")
RAW_ARITY = Code("FIC201", "compiled function's arity", "A compiled function called with another number of arguments.")
ASSIGNMENT = Code("FIC202", "assignment into FlashInfer", "A patch onto a name that a release does not have.")
UNPACKED = Code("FIC203", "result taken apart", "A result unpacked into more or fewer parts than a release returns.")
HEADER = Code("FIC301", "header missing", "An included header of FlashInfer's that a release does not have.")
TEMPLATE = Code("FIC302", "template's arguments", "A call that no overload of a release's function template takes.")
CLASH = Code("FIC401", "requirements clash", "A requirement that a release of FlashInfer leaves no version of.")
VERSION_TEXT = Code("FIC205", "version compared as text", "Releases ordered as text: 0.10 comes before 0.7.")
POST_RELEASE = Code("FIC206", "gate that is false on a post release", "An exact comparison that a .post release fails.")
UNRESOLVED = Code("FIC900", "unresolved", "A use of which it cannot be said what it comes to.")

CODES = (
    MISSING_NAME,
    PROBE,
    UNKNOWN_KEYWORD,
    TOO_MANY,
    REQUIRED,
    SHIFT,
    DEFAULT,
    RAW_ARITY,
    ASSIGNMENT,
    UNPACKED,
    VERSION_TEXT,
    POST_RELEASE,
    HEADER,
    TEMPLATE,
    CLASH,
)

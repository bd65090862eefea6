"""What a line of an adapter is: one difference of a release, its outcome for the caller, and how it is bridged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .support import Support


@dataclass(frozen=True, kw_only=True)
class Line:
    """Base of all lines. `note` says in a sentence how the facade bridges the difference, with the upstream source."""

    note: str

    def support(self, native: Any) -> Support:
        """The outcome, given the native object (a function for a parameter's line) or `MISSING`."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Noted(Line):
    """A difference that the facade leaves as it is, and says so: `outcome` of `parameter` on this release.

    Of what cannot be had, `since` names the first release that has it, and `instead` what to do.
    """

    parameter: str
    outcome: Support
    since: str | None = None
    instead: str = ""

    def support(self, native: Any) -> Support:
        return self.outcome


@dataclass(frozen=True, kw_only=True)
class NameLine(Line):
    """A line about a whole name."""

    #: Whether it has something in the place of a name that a release has not.
    supplies: ClassVar[bool] = False

    def bind(self, native: Any, name: str, release: str) -> Any:
        """The facade's object for `name`, given FlashInfer's own or `MISSING`."""
        raise NotImplementedError

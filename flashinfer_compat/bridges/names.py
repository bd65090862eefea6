"""Lines about whole names: added by the facade, moved upstream, or missing from a release."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import FeatureUnavailable, explained
from ..lines import NameLine
from ..support import MISSING, Support


@dataclass(frozen=True, kw_only=True)
class Added(NameLine):
    """A name that the facade adds to one of FlashInfer's modules; `factory` makes it when it is first used."""

    factory: Callable[[], Any]

    def support(self, native: Any) -> Support:
        return Support.EMULATED

    def bind(self, native: Any, name: str, release: str) -> Any:
        return self.factory()


@dataclass(frozen=True, kw_only=True)
class Moved(NameLine):
    """A name that another release has and this one has elsewhere.

    `to` is ``module:attribute`` below ``flashinfer``; `instead` is what new code should use, and a warning says so. It
    is left out where the newest release has the name.
    """

    to: str
    instead: str = ""

    def support(self, native: Any) -> Support:
        return Support.NATIVE if native is not MISSING else Support.EMULATED

    def bind(self, native: Any, name: str, release: str) -> Any:
        if native is not MISSING:
            return native
        module, attribute = self.to.split(":")
        if self.instead:
            _deprecated(name, release, self.instead)
        return getattr(importlib.import_module(f"flashinfer.{module}"), attribute)


@dataclass(frozen=True, kw_only=True)
class Retired(NameLine):
    """A name that a supported release had and this one has nowhere: `factory` makes a replacement."""

    factory: Callable[[], Any]
    instead: str

    def support(self, native: Any) -> Support:
        return Support.NATIVE if native is not MISSING else Support.EMULATED

    def bind(self, native: Any, name: str, release: str) -> Any:
        if native is not MISSING:
            return native
        _deprecated(name, release, self.instead)
        return self.factory()


@dataclass(frozen=True, kw_only=True)
class Missing(NameLine):
    """A name that only later releases have and that cannot be emulated."""

    since: str
    instead: str

    def support(self, native: Any) -> Support:
        return Support.NATIVE if native is not MISSING else Support.UNAVAILABLE

    def bind(self, native: Any, name: str, release: str) -> Any:
        if native is not MISSING:
            return native
        raise FeatureUnavailable(
            explained(f"flashinfer.{name}", since=self.since, installed=release, instead=self.instead)
        )


def _deprecated(name: str, release: str, instead: str) -> None:
    """Warn whoever reads `name`: above `bind` are the adapter and two frames of the mirrored module."""
    message = f"flashinfer.{name} is gone from FlashInfer {release}; use {instead}"
    warnings.warn(message, DeprecationWarning, stacklevel=6)

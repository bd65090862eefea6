"""Lines about whole names: added by the facade, moved upstream, or missing from a release."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import FeatureUnavailable, explained
from ..lines import NameLine
from ..support import MISSING, Support

if TYPE_CHECKING:
    from ..surfaces.model import Function

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Added(NameLine):
    """A name that the facade adds to one of FlashInfer's modules; `factory` makes it when it is first used.

    `needed` says whether FlashInfer does not do the same by itself on the installed release.
    """

    factory: Callable[[], Any]
    needed: Callable[[], bool] | None = None

    def support(self, native: Any) -> Support:
        return Support.EMULATED if self.needed is None or self.needed() else Support.NATIVE

    def bind(self, native: Any, name: str, release: str) -> Any:
        made = self.factory()
        if inspect.isfunction(made) and "<locals>" in made.__qualname__:
            # Made for this release; it is found, and pickled, by its name here.
            made.__module__, made.__qualname__ = f"{_PACKAGE}.{name.rpartition('.')[0]}", made.__name__
        return made


@dataclass(frozen=True, kw_only=True)
class Moved(NameLine):
    """A name that another release has and this one has elsewhere.

    `to` is ``module:attribute`` below ``flashinfer``; `instead` is what new code should use, and a warning says so. It
    is left out where the newest release has the name.
    """

    supplies: ClassVar[bool] = True
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
class Supplied(NameLine):
    """A name that other releases have and this one has nowhere: `factory` makes a replacement."""

    supplies: ClassVar[bool] = True
    factory: Callable[[], Any]

    def support(self, native: Any) -> Support:
        return Support.NATIVE if native is not MISSING else Support.EMULATED

    def bind(self, native: Any, name: str, release: str) -> Any:
        return self.factory() if native is MISSING else native


@dataclass(frozen=True, kw_only=True)
class Retired(Supplied):
    """A `Supplied` name that older releases had, and that new code should not use: a warning says what to use."""

    instead: str

    def bind(self, native: Any, name: str, release: str) -> Any:
        if native is MISSING:
            _deprecated(name, release, self.instead)
        return super().bind(native, name, release)


@dataclass(frozen=True, kw_only=True)
class Exported(Retired):
    """A `Retired` name that is another name of the facade's object `of`, in each release that has it."""

    of: str
    factory: Callable[[], Any] = lambda: None

    def bind(self, native: Any, name: str, release: str) -> Any:
        from ..namespace import facade_object

        if native is MISSING:
            _deprecated(name, release, self.instead)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it has been said
            return facade_object(self.of)


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


@dataclass(frozen=True, kw_only=True)
class Gone(NameLine):
    """A name that only older releases have, `had`, and that is not emulated: `instead` says what took its place."""

    had: str
    instead: str

    def support(self, native: Any) -> Support:
        return Support.NATIVE if native is not MISSING else Support.UNAVAILABLE

    def bind(self, native: Any, name: str, release: str) -> Any:
        if native is not MISSING:
            return native
        raise FeatureUnavailable(
            f"flashinfer.{name}: FlashInfer {self.had} have it; installed is {release}. {self.instead}"
        )


@dataclass(frozen=True, kw_only=True)
class AnsweredNo(NameLine):
    """A question about a kernel that this release lacks, ``supports_…``: it takes what the newest one's takes."""

    supplies: ClassVar[bool] = True

    def support(self, native: Any) -> Support:
        return Support.NATIVE if native is not MISSING else Support.EMULATED

    def bind(self, native: Any, name: str, release: str) -> Any:
        if native is not MISSING:
            return native
        module, _, function = name.rpartition(".")
        made: dict[str, Any] = {"__name__": f"flashinfer_compat.{module}"}
        exec(f"def {function}{_newest_signature(name)}: return False", made)
        return made[function]


def _newest_signature(name: str) -> Function:
    """What the newest recorded release takes, as source text, without its annotations."""
    # Imported here: only what FlashInfer does not have needs the recorded surfaces, and not before it is read.
    from ..surfaces import store
    from ..surfaces.model import Function

    found = store.open_surface(store.RECORDED[-1]).find(name)
    if found is None or not isinstance(found.symbol, Function):
        raise LookupError(f"{name} is no function of FlashInfer {store.RECORDED[-1]}")
    return Function(tuple(replace(one, annotation=None) for one in found.symbol.parameters))


def _deprecated(name: str, release: str, instead: str) -> None:
    """Warn whoever reads `name`, in front of the facade's own frames and the import system's."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in (_PACKAGE, "importlib"):
        frame, level = frame.f_back, level + 1
    warnings.warn(f"flashinfer.{name} is gone from FlashInfer {release}; use {instead}", DeprecationWarning, level - 1)

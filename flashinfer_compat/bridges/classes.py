"""Lines about classes of FlashInfer, which the facade subclasses."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

from ..lines import NameLine
from ..support import MISSING, Support
from .rules import Rule
from .signatures import adapt

#: Finds the facade's object for a dotted name.
FacadeObject = Callable[[str], Any]


@dataclass(frozen=True, kw_only=True)
class Extended(NameLine):
    """A class of FlashInfer, subclassed with `mixin`: a factory, so that nothing is imported before it is needed.

    It gives None where the installed class needs none.
    """

    mixin: Callable[[type], type | None]

    def bases(self, native: type, facade_object: FacadeObject) -> tuple[type, ...]:
        """What comes before `native` among the bases."""
        mixin = self.mixin(native)
        return () if mixin is None else (mixin,)

    def own(self, native: type) -> dict[str, Any]:
        """What of `native` itself has to come before those bases."""
        return {}

    def support(self, native: Any) -> Support:
        return Support.UNAVAILABLE if native is MISSING else Support.NATIVE

    def bind(self, native: Any, name: str, release: str) -> Any:
        return native


@dataclass(frozen=True, kw_only=True)
class Follows(NameLine):
    """A subclass, in FlashInfer, of a class that the facade extends: it becomes one of the facade's `parent` too."""

    parent: str

    def support(self, native: Any) -> Support:
        return Support.UNAVAILABLE if native is MISSING else Support.NATIVE

    def bind(self, native: Any, name: str, release: str) -> Any:
        return native

    def bases(self, native: type, facade_object: FacadeObject) -> tuple[type, ...]:
        return (facade_object(self.parent),)

    def own(self, native: type) -> dict[str, Any]:
        return {name: value for name, value in vars(native).items() if inspect.isfunction(value)}


def derive(
    native: type,
    lines: Iterable[Extended | Follows],
    methods: Mapping[str, Iterable[Rule]],
    *,
    name: str,
    release: str,
    facade_object: FacadeObject,
) -> type:
    """`native` extended by `lines` and with adapted `methods`, a subclass; itself where there is nothing to do."""
    bases: tuple[type, ...] = ()
    namespace: dict[str, Any] = {}
    for line in lines:
        bases += line.bases(native, facade_object)
        namespace |= line.own(native)
    for method, rules in methods.items():
        # One that only later releases have may be a base's.
        original = next(getattr(cls, method) for cls in (native, *bases) if hasattr(cls, method))
        adapted = adapt(original, rules, name=f"{name}.{method}", release=release, owner=native)
        if adapted is not original:
            namespace |= _following(native, original, adapted)
    if not bases and not namespace:
        return native
    module, _, qualname = name.rpartition(".")
    namespace |= {"__module__": f"flashinfer_compat.{module}", "__qualname__": qualname, "__doc__": native.__doc__}
    with warnings.catch_warnings():
        # A class that FlashInfer calls deprecated says so to whoever subclasses it (PEP 702).
        warnings.simplefilter("ignore", DeprecationWarning)
        return type(native)(native.__name__, (*bases, native), namespace)


def _following(native: type, original: Any, adapted: Any) -> dict[str, Any]:
    """A method and what goes with it in FlashInfer's own class bodies: ``begin_forward = plan``, a partialmethod."""
    found = {}
    for name in dir(native):
        held = inspect.getattr_static(native, name)
        if isinstance(held, partialmethod) and held.func is original:
            found[name] = partialmethod(adapted, *held.args, **held.keywords)
        elif getattr(native, name, None) is original:
            found[name] = adapted
    return found

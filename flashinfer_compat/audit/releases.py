"""The surfaces that an audit looks at, and what a dotted name is in each."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, cast

from ..surfaces import store
from ..surfaces.derived import DerivedSurface
from ..surfaces.model import PACKAGE, Class, Found, Function, Module, Parameter, Surface
from .values import UNKNOWN, Instance, Literal, Method, Missing, RawModule, Thing, Value

#: A wrapper's attribute that holds its compiled module.
RAW_MODULES = ("_cached_module",)


class Releases:
    """The audited releases; a name counts as FlashInfer's if one of them has it."""

    def __init__(self, versions: tuple[str, ...]) -> None:
        self.surfaces: dict[str, Surface] = {version: store.open_surface(version) for version in versions}
        self.find = cache(self._find)
        self.known = cache(self._known)
        self.thing = cache(self._thing)
        self.member = cache(self._member)
        self.parameters = cache(self._parameters)
        self.makes = cache(self._makes)
        self.vary = cache(self._vary)

    def _find(self, version: str, dotted: str) -> Found | None:
        return self.surfaces[version].find(dotted)

    def guesses(self, version: str, dotted: str) -> bool:
        """Whether nothing is stated of a name, in a release that is concluded from neighbours that differ."""
        surface = self.surfaces[version]
        return isinstance(surface, DerivedSurface) and surface.provenance(dotted) == "unknown"

    def has(self, version: str, dotted: str) -> bool:
        return self.find(version, dotted) is not None

    def _known(self, dotted: str) -> bool:
        return any(self.find(version, dotted) is not None for version in self.surfaces)

    def _makes(self, dotted: str) -> bool:
        """Whether calling a name gives an object of one of FlashInfer's classes, on any release."""
        return any(self.called(version, dotted) != UNKNOWN for version in self.surfaces)

    def _vary(self, question: str, *about: Any) -> bool:
        """Whether the releases answer a question, one of this class's methods, differently."""
        ask = getattr(self, question)
        return len({ask(version, *about) for version in self.surfaces}) > 1

    def _thing(self, version: str, dotted: str, error: str = "AttributeError") -> Value:
        """What ``dotted`` gives when it is read on a release."""
        if dotted == f"{PACKAGE}.__version__":
            return Literal(version)
        if self.find(version, dotted) is not None:
            return Thing(dotted)
        holder, _, name = dotted.rpartition(".")
        found = self.find(version, holder) if holder else None
        if found is None:
            # The holder itself is missing, or nothing is known of it.
            above = self.thing(version, holder, error) if holder and holder != PACKAGE else UNKNOWN
            return Missing(dotted, error) if isinstance(above, Missing) else UNKNOWN
        if name.startswith("__") and name.endswith("__"):
            return UNKNOWN
        if isinstance(found.symbol, Module):
            return UNKNOWN if found.symbol.dynamic and not self.known(dotted) else Missing(dotted, error)
        if isinstance(found.symbol, Class) and self.known(dotted):
            return Missing(dotted, error)
        return UNKNOWN

    def _member(self, version: str, of: str, name: str) -> Value:
        """What ``object_of_the_class.name`` gives."""
        if name in RAW_MODULES:
            return RawModule(of)
        found = self.find(version, of)
        if found is None:
            return UNKNOWN
        member = self.surfaces[version].member(found, name)
        if member is not None:
            is_method = isinstance(member.symbol, Function) and not member.symbol.is_property
            return Method(of, name) if is_method else self.annotated(version, member, "")
        if name in self.surfaces[version].attributes(found):
            return UNKNOWN
        elsewhere = any(
            holder is not None and (surface.member(holder, name) is not None or name in surface.attributes(holder))
            for other, surface in self.surfaces.items()
            if (holder := self.find(other, of))
        )
        return Missing(f"{of}.{name}") if elsewhere else UNKNOWN

    def annotated(self, version: str, found: Found, annotation: str) -> Value:
        """An instance of the class of FlashInfer's that an annotation names, if it names one."""
        name = (annotation or getattr(found.symbol, "returns", None) or "").strip("\"'").partition("[")[0]
        if not name.replace(".", "").isidentifier():
            return UNKNOWN
        there = self.find(version, f"{found.module}.{name}")
        return Instance(f"{found.module}.{name}") if there and isinstance(there.symbol, Class) else UNKNOWN

    def called(self, version: str, dotted: str) -> Value:
        """What calling a class or function gives."""
        found = self.find(version, dotted)
        if found is None:
            return UNKNOWN
        if isinstance(found.symbol, Class):
            return Instance(dotted)
        return self.annotated(version, found, "") if isinstance(found.symbol, Function) else UNKNOWN

    def _parameters(self, version: str, value: Value) -> tuple[str, ...] | None:
        """What `inspect.signature` shows of a function."""
        taken = self.signature(version, value)
        return None if taken is None else tuple(one.name for one in taken[0])

    def parts(self, version: str, value: Value) -> int | None:
        """How many parts the result of a call has by its annotation, 1 of a tensor; None where it does not say."""
        found = self._function(version, value)
        returns = (getattr(found.symbol, "returns", None) or "").strip("\"'") if found else ""
        if returns in ("torch.Tensor", "Tensor"):
            return 1
        match = re.fullmatch(r"(?:typing\.)?[Tt]uple\[(.*)\]", returns)
        if match is None or "..." in match[1]:
            return None
        depth, parts = 0, 1
        for character in match[1]:
            depth += (character == "[") - (character == "]")
            parts += character == "," and not depth
        return parts

    def _function(self, version: str, value: Value) -> Found | None:
        """What a call of `value` reaches."""
        if isinstance(value, Method):
            holder = self.find(version, value.of)
            return self.surfaces[version].member(holder, value.name) if holder else None
        return self.find(version, value.dotted) if isinstance(value, Thing) else None

    def signature(self, version: str, value: Value) -> tuple[tuple[Parameter, ...], dict[str, str]] | None:
        """What a call of `value` may pass: parameters, and keywords that a decorator takes; None if not known."""
        surface = self.surfaces[version]
        found = self._function(version, value)
        if found is None:
            return None
        if isinstance(found.symbol, Class):
            parameters = surface.constructor(found)
            return None if parameters is None else (parameters, surface.accepts(found))
        if not isinstance(found.symbol, Function) or found.symbol.overloads:
            return None
        parameters = found.symbol.parameters
        static = "staticmethod" in found.symbol.decorators
        bound = isinstance(value, Method) or "classmethod" in found.symbol.decorators
        if bound and not static:
            parameters = parameters[1:]
        return parameters, cast(dict[str, str], dict(found.symbol.accepts))

"""Rules for single parameters of a function or method: what a caller may pass, and what becomes of it.

A rule applies where the native signature lacks its parameter, so a release about which nothing is known settles it by
itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..lines import Line
from ..support import MISSING, Support

Parameters = Mapping[str, inspect.Parameter]


@dataclass(frozen=True, kw_only=True)
class Rule(Line):
    """A line about parameters of a function or method. `adds` maps each keyword it adds to its default."""

    outcome: ClassVar[Support]
    adds: Mapping[str, Any] = field(default_factory=dict)

    def applies(self, native: Parameters) -> bool:
        """Whether the installed signature needs this rule."""
        return any(name not in native for name in self.adds)

    @property
    def subject(self) -> tuple[str, ...]:
        """The parameters whose outcome is decided here."""
        return tuple(self.adds)

    def support(self, native: Any) -> Support:
        """The outcome, given the installed parameters (`native_parameters`) or `MISSING`."""
        return Support.NATIVE if native is not MISSING and not self.applies(native) else self.outcome


@dataclass(frozen=True, kw_only=True)
class Refuse(Rule):
    """A keyword that cannot be had: dropped at its default, refused at any other value."""

    outcome: ClassVar[Support] = Support.UNAVAILABLE

    since: str
    instead: str


@dataclass(frozen=True, kw_only=True)
class RefuseValues(Rule):
    """Values of a native `parameter` that only later releases understand, each with its first release."""

    outcome: ClassVar[Support] = Support.UNAVAILABLE

    parameter: str
    values: Mapping[Any, str]
    instead: str

    def applies(self, native: Parameters) -> bool:
        """Unless the native annotation, a Literal, lists the values."""
        annotation = str(native[self.parameter].annotation) if self.parameter in native else ""
        return self.parameter in native and not all(repr(value) in annotation for value in self.values)

    @property
    def subject(self) -> tuple[str, ...]:
        return tuple(f"{self.parameter}={value!r}" for value in self.values)


@dataclass(frozen=True, kw_only=True)
class Ignore(Rule):
    """A keyword that only promises speed: accepted, and reported as ignored."""

    outcome: ClassVar[Support] = Support.IGNORED


@dataclass(frozen=True, kw_only=True)
class Emulate(Rule):
    """Keywords honoured by another route.

    `via` names among its own parameters what it takes of the call (``self`` included) and returns the new values of
    `gives`, a tuple if there are several. With `after` it runs behind the native call.
    """

    outcome: ClassVar[Support] = Support.EMULATED

    via: Callable[..., Any]
    gives: tuple[str, ...] = ()
    after: bool = False


@dataclass(frozen=True, kw_only=True)
class Convert(Emulate):
    """An `Emulate` that adds no keyword: native arguments are checked, or put into the form that this release needs.

    Left out where the native function takes the parameter `unless`: it then does so itself.
    """

    unless: str = ""

    def applies(self, native: Parameters) -> bool:
        return self.unless not in native

    @property
    def subject(self) -> tuple[str, ...]:
        return () if self.after else tuple(name for name in inspect.signature(self.via).parameters if name != "self")


@dataclass(frozen=True, kw_only=True)
class Contiguous(Rule):
    """Tensors that this release reads through raw pointers as if dense."""

    outcome: ClassVar[Support] = Support.EMULATED

    parameters: tuple[str, ...]
    unless: str = ""

    def applies(self, native: Parameters) -> bool:
        return self.unless not in native

    @property
    def subject(self) -> tuple[str, ...]:
        return self.parameters


@dataclass(frozen=True, kw_only=True)
class Reroute(Rule):
    """Keywords honoured by another callable: `through` makes it from the native one, and takes them by keyword."""

    outcome: ClassVar[Support] = Support.EMULATED

    through: Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class SpellOut(Rule):
    """An opaque ``method(…, *tail, **kwargs)`` whose keywords are those of another method, `implementation`.

    They become explicit, so that an unknown one fails at the call. `merge` checks a positional tail: it takes the tail,
    the values and the defaults of the parameters named in `tail`, and returns the values to use.
    """

    outcome: ClassVar[Support] = Support.NATIVE

    implementation: str
    tail: tuple[str, ...]
    merge: Callable[[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]

    def applies(self, native: Parameters) -> bool:
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in native.values())

    def spelled(self, native: Parameters, owner: type) -> dict[str, inspect.Parameter]:
        """The native parameters with the implementation's keywords in place of ``**kwargs``."""
        keywords = inspect.signature(getattr(owner, self.implementation)).parameters.values()
        return {
            name: parameter for name, parameter in native.items() if parameter.kind is not parameter.VAR_KEYWORD
        } | {parameter.name: parameter for parameter in keywords if parameter.kind is parameter.KEYWORD_ONLY}


@dataclass(frozen=True, kw_only=True)
class KeywordOnly(Rule):
    """Parameters whose position differs between releases: passed by keyword alone, on all of them."""

    outcome: ClassVar[Support] = Support.NATIVE

    parameters: tuple[str, ...]

    def applies(self, native: Parameters) -> bool:
        return any(name in native for name in self.parameters)

    @property
    def subject(self) -> tuple[str, ...]:
        return self.parameters


def native_parameters(native: Callable[..., Any], rules: Iterable[Rule], owner: type | None = None) -> Parameters:
    """What `native` accepts, opaque keywords spelled out."""
    parameters: Parameters = inspect.signature(native).parameters
    for rule in rules:
        if isinstance(rule, SpellOut) and owner is not None and rule.applies(parameters):
            parameters = rule.spelled(parameters, owner)
    return parameters

"""Functions with explicit parameters, generated once from rules when a name is first used: a call costs one frame."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import UnsupportedArgument, explained
from .rules import (
    Contiguous,
    Emulate,
    KeywordOnly,
    Parameters,
    Refuse,
    RefuseValues,
    Reroute,
    Rule,
    SpellOut,
    native_parameters,
)

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def adapt(
    native: Callable[..., Any], rules: Iterable[Rule], *, name: str, release: str, owner: type | None = None
) -> Callable[..., Any]:
    """`native` with every rule that applies to it; `native` itself where none does. `owner` is a method's class."""
    rules = list(rules)
    accepted = native_parameters(native, rules, owner)
    applying = [
        rule
        for rule in rules
        if rule.applies(inspect.signature(native).parameters if isinstance(rule, SpellOut) else accepted)
    ]
    if not applying:
        return native
    generated = _Generated(native, accepted, name, release)
    for rule in applying:
        generated.add(rule)
    return generated.function()


class _Generated:
    """The source of one adapted function, and what its names stand for."""

    def __init__(self, native: Callable[..., Any], parameters: Parameters, name: str, release: str) -> None:
        self.native, self.name, self.release = native, name, release
        self.parameters = dict(parameters)
        self.forwarded = list(parameters.values())
        self.before: list[str] = []
        self.after: list[str] = []
        self.names: dict[str, Any] = {"_native": native}

    def add(self, rule: Rule) -> None:
        for keyword, default in rule.adds.items():
            if keyword not in self.parameters:
                self.parameters[keyword] = inspect.Parameter(keyword, inspect.Parameter.KEYWORD_ONLY, default=default)
        if isinstance(rule, Refuse):
            for keyword, default in rule.adds.items():
                check = self._named("refuse", _refusal(f"{self.name}({keyword}=)", default, rule, self.release))
                self.before.append(f"if {keyword} is not {self._named('default', default)}: {check}({keyword})")
        elif isinstance(rule, RefuseValues):
            check = self._named("refuse", _value_refusal(self.name, rule, self.release))
            values = self._named("values", frozenset(rule.values))
            self.before.append(f"if {rule.parameter} in {values}: {check}({rule.parameter})")
        elif isinstance(rule, Emulate):
            call = f"{self._named('via', rule.via)}({', '.join(inspect.signature(rule.via).parameters)})"
            statement = f"{', '.join(rule.gives)} = {call}" if rule.gives else call
            (self.after if rule.after else self.before).append(statement)
        elif isinstance(rule, Contiguous):
            self.before += [f"if {tensor} is not None: {tensor} = {tensor}.contiguous()" for tensor in rule.parameters]
        elif isinstance(rule, SpellOut):
            (star,) = (p.name for p in self.forwarded if p.kind is p.VAR_POSITIONAL)
            self.forwarded = [p for p in self.forwarded if p.name != star]
            defaults = self._named("defaults", tuple(self.parameters[keyword].default for keyword in rule.tail))
            tail = ", ".join(rule.tail)
            self.before.insert(
                0, f"if {star}: {tail} = {self._named('merge', rule.merge)}({star}, ({tail}), {defaults})"
            )
        elif isinstance(rule, Reroute):
            self.names["_native"] = rule.through(self.native)
            self.forwarded += [self.parameters[keyword] for keyword in rule.adds]
        elif isinstance(rule, KeywordOnly):
            for keyword in rule.parameters:
                if keyword in self.parameters:
                    parameter = self.parameters.pop(keyword)
                    self.parameters[keyword] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)

    def function(self) -> Callable[..., Any]:
        ordered = sorted(self.parameters.values(), key=lambda parameter: parameter.kind)
        body = [*self.before, f"result = _native({self._call()})", *self.after, "return result"]
        if not self.after:
            body[-2:] = [f"return _native({self._call()})"]
        source = f"def {self.native.__name__}({self._declaration(ordered)}):\n    " + "\n    ".join(body)
        exec(compile(source, f"<flashinfer_compat {self.name}>", "exec"), self.names)
        function: Callable[..., Any] = self.names[self.native.__name__]
        module, _, _ = self.name.partition("." + self.native.__qualname__)
        function.__module__ = f"flashinfer_compat.{module}"
        function.__qualname__ = self.native.__qualname__
        function.__doc__ = self.native.__doc__
        function.__annotations__ = dict(getattr(self.native, "__annotations__", {}))
        return function

    def _named(self, role: str, value: Any) -> str:
        """A name in the function's globals for `value`."""
        name = f"_{role}_{len(self.names)}"
        self.names[name] = value
        return name

    def _declaration(self, parameters: list[inspect.Parameter]) -> str:
        """The parameter list, every default by name so that it is the native object itself."""
        parts: list[str] = []
        for parameter in parameters:
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
                parts.append("*")
            star = _STARS.get(parameter.kind, "")
            default = "" if parameter.default is parameter.empty else f"={self._named('default', parameter.default)}"
            parts.append(f"{star}{parameter.name}{default}")
        return ", ".join(parts)

    def _call(self) -> str:
        """The native call's arguments: positional where the native function takes them so, which is the faster way."""
        parts = []
        for parameter in self.forwarded:
            if parameter.kind in _POSITIONAL:
                parts.append(parameter.name)
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                parts.append(f"{parameter.name}={parameter.name}")
            else:
                parts.append(f"{_STARS[parameter.kind]}{parameter.name}")
        return ", ".join(parts)


def _refusal(what: str, default: Any, rule: Refuse, release: str) -> Callable[[Any], None]:
    message = explained(what, since=rule.since, installed=release, instead=rule.instead)

    def refuse(value: Any) -> None:
        # An equal scalar is the default, whatever its identity (0 for False); a tensor never is.
        if not (isinstance(value, (bool, int, float, str)) and value == default):
            raise UnsupportedArgument(message)

    return refuse


def _value_refusal(name: str, rule: RefuseValues, release: str) -> Callable[[Any], None]:
    def refuse(value: Any) -> None:
        raise UnsupportedArgument(
            explained(
                f"{name}({rule.parameter}={value!r})", since=rule.values[value], installed=release, instead=rule.instead
            )
        )

    return refuse

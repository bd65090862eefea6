"""Functions with explicit parameters, generated once from rules when a name is first used: a call costs one frame."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import explained
from .rules import Parameters, Rule, SpellOut, native_parameters

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def adapt(
    native: Callable[..., Any], rules: Iterable[Rule], *, name: str, release: str, owner: type | None = None
) -> Callable[..., Any]:
    """`native` with every rule that applies to it; `native` itself where none does. `owner` is a method's class."""
    rules = list(rules)
    declared = inspect.signature(native).parameters
    accepted = native_parameters(native, rules, owner)
    applying = [rule for rule in rules if rule.applies(declared if isinstance(rule, SpellOut) else accepted)]
    if not applying:
        return native
    function = GeneratedFunction(native, accepted, name, release)
    for rule in applying:
        function.declare(rule.adds)
        rule.write(function)
    return function.compiled()


class GeneratedFunction:
    """The source of one adapted function, and what its names stand for. Rules write into it.

    Its body: what comes first, the checks, what is done before the native call, the call, what is done after it. So
    nothing has happened yet when a check raises.
    """

    def __init__(self, native: Callable[..., Any], parameters: Parameters, name: str, release: str) -> None:
        self.native, self.name, self.release = native, name, release
        self.parameters = dict(parameters)
        self._forwarded = list(parameters.values())
        self._names: dict[str, Any] = {"_native": native}
        self._renamed: dict[str, str] = {}
        self._optional: tuple[str, Any, Callable[[str], None]] | None = None
        self._given_only = False
        self._first: list[str] = []
        self._checks: list[str] = []
        self._before: list[str] = []
        self._after: list[str] = []
        self._finally: list[str] = []

    def first(self, statement: str) -> None:
        self._first.append(statement)

    def check(self, statement: str) -> None:
        self._checks.append(statement)

    def before(self, statement: str) -> None:
        self._before.append(statement)

    def after(self, statement: str) -> None:
        """Add `statement` behind the native call, whose result is ``result``."""
        self._after.append(statement)

    def finally_(self, statement: str) -> None:
        """Add `statement` behind the native call, whether it returns or raises."""
        self._finally.append(statement)

    def named(self, role: str, value: Any) -> str:
        """A name in the function's globals for `value`."""
        name = f"_{role}_{len(self._names)}"
        self._names[name] = value
        return name

    def message(self, call: str, *, since: str, instead: str) -> str:
        """What an error about a `call` of this function says."""
        return explained(self.name + call, since=since, installed=self.release, instead=instead)

    def declare(self, keywords: Mapping[str, Any]) -> None:
        """Accept `keywords` (name -> default), keyword-only, unless the native function does."""
        for keyword, default in keywords.items():
            if keyword not in self.parameters:
                self.parameters[keyword] = inspect.Parameter(keyword, inspect.Parameter.KEYWORD_ONLY, default=default)

    def keyword_only(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.parameters:
                self.parameters[name] = self.parameters.pop(name).replace(kind=inspect.Parameter.KEYWORD_ONLY)

    def rename(self, native: str, name: str) -> None:
        """Take the parameter that the native function calls `native` as `name`, at the same place."""
        self._renamed[native] = name
        self.parameters = {
            name if key == native else key: parameter.replace(name=name) if key == native else parameter
            for key, parameter in self.parameters.items()
        }

    def may_be_left_out(self, name: str, unset: Any, missing: Callable[[str], None]) -> None:
        """Let a required parameter be given in another way; `missing` raises where those behind it are not given."""
        self._optional = (name, unset, missing) if self._optional is None else self._optional

    def keep_back_tail(self) -> str:
        """Do not forward the ``*tail``; returns its name."""
        (star,) = (parameter.name for parameter in self._forwarded if parameter.kind is parameter.VAR_POSITIONAL)
        self._forwarded = [parameter for parameter in self._forwarded if parameter.name != star]
        return star

    def reroute(self, through: Callable[[Callable[..., Any]], Callable[..., Any]], keywords: Iterable[str]) -> None:
        """Call what `through` makes of the function called so far, with `keywords` besides."""
        self._names["_native"] = through(self._names["_native"])
        self._forwarded += [self.parameters[keyword] for keyword in keywords]

    def forward_given_only(self) -> None:
        """Pass on, of the parameters that have a default, those that are not left at it; by keyword."""
        self._given_only = True

    def compiled(self) -> Callable[..., Any]:
        if self._optional is not None:
            self._make_optional(*self._optional)
        body = [*self._first, *self._checks, *self._before]
        if self._given_only:
            body.append("given = {}")
            for parameter in self._forwarded:
                if parameter.default is not parameter.empty:
                    name, default = self._taken(parameter), self.named("default", parameter.default)
                    body.append(f"if {name} is not {default}: given[{parameter.name!r}] = {name}")
        call = f"_native({self._call()})"
        called = [f"result = {call}", *self._after, "return result"] if self._after else [f"return {call}"]
        if self._finally:
            indented = ["    " + line for line in called], ["    " + line for line in self._finally]
            called = ["try:", *indented[0], "finally:", *indented[1]]
        body += called
        source = f"def {self.native.__name__}({self._declaration()}):\n    " + "\n    ".join(body)
        exec(compile(source, f"<flashinfer_compat {self.name}>", "exec"), self._names)
        function: Callable[..., Any] = self._names[self.native.__name__]
        # Where it is found here, which is how it is pickled: FlashInfer may define it elsewhere, by another name.
        module, _, qualname = self.name.rpartition(".")
        if "." in self.native.__qualname__:
            module, _, holder = module.rpartition(".")
            qualname = f"{holder}.{qualname}"
        function.__module__ = f"flashinfer_compat.{module}".rstrip(".")
        function.__qualname__ = qualname
        function.__doc__ = self.native.__doc__
        # FlashInfer's API tracing hangs on attributes (api_logging.py: fi_trace).
        own = ("__wrapped__", "__signature__")
        vars(function).update({name: value for name, value in vars(self.native).items() if name not in own})
        function.__annotations__ = dict(getattr(self.native, "__annotations__", {}))
        return function

    def _make_optional(self, name: str, unset: Any, missing: Callable[[str], None]) -> None:
        keys = list(self.parameters)
        for key in keys[keys.index(name) :]:
            parameter = self.parameters[key]
            if parameter.kind in _POSITIONAL and parameter.default is parameter.empty:
                self.parameters[key] = parameter.replace(default=unset)
                self._checks.insert(
                    0, f"if {key} is {self.named('unset', unset)}: {self.named('missing', missing)}({key!r})"
                )

    def _declaration(self) -> str:
        """The parameter list, every default by name so that it is the native object itself."""
        parts: list[str] = []
        for parameter in sorted(self.parameters.values(), key=lambda parameter: parameter.kind):
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
                parts.append("*")
            default = "" if parameter.default is parameter.empty else f"={self.named('default', parameter.default)}"
            parts.append(f"{_STARS.get(parameter.kind, '')}{parameter.name}{default}")
        return ", ".join(parts)

    def _call(self) -> str:
        """The native call's arguments: positional where the native function takes them so, which is the faster way."""
        parts = []
        for parameter in self._forwarded:
            if self._given_only and parameter.default is not parameter.empty:
                continue
            if parameter.kind in _POSITIONAL:
                parts.append(self._taken(parameter))
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                parts.append(f"{parameter.name}={self._taken(parameter)}")
            else:
                parts.append(f"{_STARS[parameter.kind]}{parameter.name}")
        return ", ".join([*parts, "**given"] if self._given_only else parts)

    def _taken(self, parameter: inspect.Parameter) -> str:
        """The name under which the caller gives a native parameter."""
        return self._renamed.get(parameter.name, parameter.name)

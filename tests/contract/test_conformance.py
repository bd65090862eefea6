"""Each adapted function and method, called with each keyword of the contract and with each positional argument.

What is called is adapted from the real function's signature by the adapter's own lines; in the place of its body stands
a recorder. So this proves what binds to which of FlashInfer's parameters, or that our own error is raised. What the
mechanisms behind the lines do to values is replaced by passing them on, and tested for each mechanism by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest

from flashinfer_compat import CompatError, namespace
from flashinfer_compat.adapters import RELEASES
from flashinfer_compat.adapters.model import split
from flashinfer_compat.bridges.rules import (
    AnswerNo,
    Emulate,
    RefuseWhen,
    Renamed,
    Reroute,
    Rule,
    SpellOut,
    native_parameters,
)
from flashinfer_compat.bridges.signatures import adapt
from flashinfer_compat.support import MISSING
from flashinfer_compat.surfaces import store
from flashinfer_compat.surfaces.model import Kind, Parameter

ADAPTER = namespace.adapter()
SURFACES = [store.open_surface(release.version) for release in RELEASES if release.version in store.RECORDED]
KEYS = sorted(key for key, lines in ADAPTER.lines.items() if any(isinstance(line, Rule) for line in lines))
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Placeholder:
    """An argument: told apart from all others, dense, and with whatever attributes a line sets or reads."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = Placeholder(name)
        return self.__dict__[name]

    def contiguous(self) -> Placeholder:
        return self


class Recorded:
    """The adapted function of a key, whose native one records what each of its parameters is given."""

    def __init__(self, key: str, *, passing: bool = True) -> None:
        self.key = key
        name, self.method = split(key)
        holder = namespace.native_object(name) if available(name) else MISSING
        native = getattr(holder, self.method, MISSING) if self.method and holder is not MISSING else holder
        if native is MISSING or not callable(native):
            pytest.skip("not on this release, or not without a package that is missing")
        self.given: dict[str, Any] | None = None
        self.refusal = ""
        rules = [line for line in ADAPTER.lines.get(key, ()) if isinstance(line, Rule)]
        owner = holder if self.method else None
        self.accepted = native_parameters(native, rules, owner)
        signature = inspect.signature(native)
        # Unconditionally answered, so the test sees whether a line was in the way of the call.
        twin = self.recorder(signature.parameters)
        twin.__name__, twin.__qualname__ = native.__name__, native.__qualname__
        if checks_backends(native):
            twin.is_backend_supported = native.is_backend_supported  # type: ignore[attr-defined]
        self.rules = [passing_on(rule, self) for rule in rules] if passing else rules
        self.function = adapt(twin, self.rules, name=key, release=ADAPTER.release, owner=owner)
        self.is_flashinfers = self.function is twin
        self.parameters = inspect.signature(self.function).parameters

    def recorder(self, parameters: Mapping[str, inspect.Parameter]) -> Callable[..., Any]:
        def native(*args: Any, **kwargs: Any) -> str:
            self.skip_check = kwargs.pop("skip_check", None)
            self.given = dict(native.__signature__.bind(*args, **kwargs).arguments)  # type: ignore[attr-defined]
            return "reached"

        native.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        return native

    def call(self, *args: Any, **kwargs: Any) -> str:
        """What came of a call, required parameters filled in: "reached", "answered" or "refused"."""
        self.given = None
        for parameter in list(self.parameters.values())[len(args) :]:
            required = parameter.default is parameter.empty or repr(parameter.default) == "<not given>"
            if required and parameter.kind not in _STARRED and parameter.name not in kwargs and not self.was(parameter):
                kwargs[parameter.name] = Placeholder(parameter.name)
        try:
            result = self.function(*args, **kwargs)
        except CompatError as error:
            self.refusal = str(error)
            return "refused"
        return "answered" if result is False else "reached"

    def was(self, parameter: inspect.Parameter) -> bool:
        """Whether it is the former name of another one."""
        return any(isinstance(rule, Renamed) and rule.was == parameter.name for rule in self.rules)

    def native_name(self, parameter: str) -> str:
        """What FlashInfer calls a parameter of the contract here."""
        for rule in self.rules:
            if isinstance(rule, Renamed) and rule.parameter == parameter and parameter not in self.accepted:
                return rule.was
        return parameter


def passing_on(rule: Rule, recorded: Recorded) -> Rule:
    """The rule with a mechanism that gives what it takes."""
    if isinstance(rule, Reroute):
        keywords = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in rule.adds.items()
        ]
        return replace(
            rule,
            through=lambda native: recorded.recorder(
                {one.name: one for one in (*inspect.signature(native).parameters.values(), *keywords)}
            ),
        )
    if isinstance(rule, RefuseWhen):
        return replace(rule, when=lambda: False)
    if isinstance(rule, Emulate):
        known = tuple(name for name in rule.gives if name in recorded.accepted or name in rule.adds or name == "result")

        def unchanged(*values: Any) -> Any:
            by_name = dict(zip(known, values, strict=True))
            given = tuple(by_name.get(name) for name in rule.gives)
            return given[0] if len(given) == 1 else given

        return replace(rule, via=unchanged if known else lambda: unchanged(), takes=known, where="")
    return rule


def checks_backends(native: Any) -> bool:
    """Whether FlashInfer's decorator backend_requirement is around it, which takes ``skip_check``."""
    return hasattr(native, "is_backend_supported")


def available(name: str) -> bool:
    try:
        return namespace.native_object(name) is not MISSING
    except ModuleNotFoundError:
        return False


def contract(key: str) -> tuple[Parameter, ...]:
    """What the newest release that has it takes."""
    for surface in reversed(SURFACES):
        parameters = taken(surface, key)
        if parameters is not None:
            return parameters
    return ()


def taken(surface: Any, key: str) -> tuple[Parameter, ...] | None:
    name, method = split(key)
    found = surface.find(name)
    if found is None:
        return None
    if method == "__init__":
        parameters = surface.constructor(found)
        return None if parameters is None else (Parameter("self"), *parameters)
    if method:
        found = surface.member(found, method)
    return getattr(found.symbol, "parameters", None) if found else None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("key", KEYS)
def test_each_keyword_of_the_contract_binds_or_is_refused_by_us(key: str) -> None:
    recorded = Recorded(key)
    opaque = any(parameter.kind in _STARRED for parameter in recorded.parameters.values())
    for parameter in contract(key):
        if parameter.name == "self" or parameter.kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD):
            continue
        if opaque and parameter.name not in recorded.parameters:
            continue  # FlashInfer's own *args and **kwargs take it
        assert parameter.name in recorded.parameters, f"{parameter.name}= of the contract"
        value = Placeholder(parameter.name)
        outcome = recorded.call(**{parameter.name: value})
        native = recorded.native_name(parameter.name)
        if outcome == "reached" and native in recorded.accepted and not opaque:
            assert recorded.given is not None
            assert recorded.given.get(native) is value, f"{parameter.name} reaches FlashInfer's {native}"
        elif outcome == "refused":
            assert parameter.name in recorded.refusal
        elif outcome == "answered":
            assert any(isinstance(rule, AnswerNo) and parameter.name in rule.adds for rule in recorded.rules)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("key", KEYS)
def test_what_is_left_out_reaches_flashinfer(key: str) -> None:
    recorded = Recorded(key)
    assert recorded.call() == "reached"
    assert recorded.given is not None
    required = [
        name
        for name, parameter in recorded.accepted.items()
        if parameter.default is parameter.empty and parameter.kind not in _STARRED
    ]
    assert [name for name in required if name not in recorded.given] == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("key", KEYS)
def test_the_check_of_a_backend_can_be_skipped(key: str) -> None:
    """By a keyword that FlashInfer's decorator takes and no signature of FlashInfer's shows; sglang looks for it."""
    recorded = Recorded(key)
    if not (available(split(key)[0]) and checks_backends(namespace.native_object(key))):
        pytest.skip("it checks no backend")
    if recorded.is_flashinfers:
        pytest.skip("FlashInfer's own")
    assert "skip_check" in recorded.parameters
    for skipped in (True, False):
        assert recorded.call(skip_check=skipped) == "reached"
        assert recorded.skip_check is skipped


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("key", KEYS)
def test_positional_arguments_bind_to_the_same_parameters_on_all_releases(key: str) -> None:
    """Up to the prefix that all releases share, or to what is by keyword only in all of them."""
    recorded = Recorded(key)
    if any(isinstance(rule, SpellOut) for rule in recorded.rules):
        pytest.skip("its positional tail is checked by type")
    all_taken = [parameters for surface in SURFACES if (parameters := taken(surface, key)) is not None]
    renamed = {rule.was: rule.parameter for rule in recorded.rules if isinstance(rule, Renamed)}
    rows = [
        [renamed.get(one.name, one.name) for one in takewhile(lambda one: one.positional, parameters)]
        for parameters in all_taken
    ]
    prefix = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*rows, strict=False))]
    arguments = [Placeholder(name) for name in prefix]
    positional = [
        name for name, one in recorded.parameters.items() if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    shared = len([None for one, other in zip(prefix, positional, strict=False) if one == other])
    assert positional[:shared] == prefix[:shared]
    assert shared == len(prefix) or positional[shared:] == [], "in the contract's order"
    if recorded.call(*arguments[:shared]) == "reached":
        assert recorded.given is not None
        for name, argument in zip(prefix[:shared], arguments, strict=False):
            native = recorded.native_name(name)
            if native in recorded.given:
                assert recorded.given[native] is argument

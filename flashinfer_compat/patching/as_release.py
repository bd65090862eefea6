"""The positional orders and defaults of one FlashInfer release, for code that was written against it."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any

from .. import namespace
from ..adapters import RELEASES
from ..bridges.signatures import GeneratedFunction
from ..errors import CompatError, UnsupportedArgument
from ..surfaces import store
from ..surfaces.model import PACKAGE, Class, Found, Function, Kind, Parameter, Surface

#: A method's name -> its parameters; ``""`` for a function's own, ``"__init__"`` for a constructor's.
Signatures = dict[str, tuple[Parameter, ...]]


class AsRelease:
    """What `release` took in another order or with other defaults than the installed or the newest release does."""

    def __init__(self, release: str) -> None:
        if release not in [supported.version for supported in RELEASES]:
            known = ", ".join(supported.version for supported in RELEASES)
            raise CompatError(f"FlashInfer {release} is no release to write code against. Supported: {known}.")
        self.release = release
        #: What each of the facade's objects has become.
        self._made: dict[Any, Any] = {}
        self._lock = threading.RLock()

    # Read when FlashInfer is there: only then it stands which release that is.
    @cached_property
    def _surface(self) -> Surface:
        return store.open_surface(self.release)

    @cached_property
    def _installed(self) -> Surface:
        installed = namespace.selected.release
        return store.open_surface(installed.version if installed else RELEASES[-1].version)

    @cached_property
    def _signatures(self) -> dict[str, Signatures]:
        """By the dotted name of the definition in the installed release."""
        return dict(self._differing([self._installed, store.open_surface(RELEASES[-1].version)]))

    @property
    def names(self) -> set[str]:
        return set(self._signatures)

    def apply(self, value: Any, dotted: str) -> Any:
        """`value`, the facade's object for a dotted name, taking what the release took: one for all names that it has.

        It is pickled by that name in FlashInfer, where a process that is patched alike has it.
        """
        found = self._installed.find(dotted) or self._surface.find(dotted)
        signatures = self._signatures.get(_below_root(found.dotted)) if found else None
        if signatures is None:
            return value
        with self._lock:
            if value not in self._made:
                self._made[value] = self._written(value, signatures, dotted)
        return self._made[value]

    def _written(self, value: Any, signatures: Signatures, dotted: str) -> Any:
        module, _, name = f"{PACKAGE}.{dotted}".rpartition(".")
        if not isinstance(value, type):
            function = written(value, signatures[""], dotted, self.release)
            if function is not value:
                function.__module__ = module
            return function
        methods = {}
        for method, parameters in signatures.items():
            original = getattr(value, method)
            adapted = written(original, parameters, f"{dotted}.{method}", self.release)
            if adapted is not original:
                methods[method] = adapted
        if not methods:
            return value
        names = {"__module__": module, "__qualname__": name, "__doc__": value.__doc__}
        return type(value)(value.__name__, (value,), {**names, **methods})

    def _differing(self, others: Sequence[Surface]) -> Iterator[tuple[str, Signatures]]:
        for module, line in self._surface.lines.items():
            if "/" in module or all(other.lines.get(module) == line for other in others):
                continue
            for name, symbol in self._surface.modules[module].symbols.items():
                if name.startswith("_") or not isinstance(symbol, (Function, Class)):
                    continue
                own = signatures(self._surface, Found(module, name, symbol))
                differing: Signatures = {}
                for other in others:
                    found = other.find(f"{module}.{name}")
                    theirs = signatures(other, found) if found else {}
                    for method, parameters in own.items():
                        if method in theirs and differ(parameters, theirs[method]):
                            differing[method] = parameters
                if differing:
                    here = self._installed.find(f"{module}.{name}")
                    yield _below_root(here.dotted if here else f"{module}.{name}"), differing


def signatures(surface: Surface, found: Found) -> Signatures:
    """The parameters of a function, or of a class's constructor and public methods (with their ``self``)."""
    if isinstance(found.symbol, Function):
        return {"": found.symbol.parameters}
    taken: Signatures = {}
    constructor = surface.constructor(found)
    if constructor is not None:
        taken["__init__"] = (Parameter("self"), *constructor)
    for name, member in surface.members(found).items():
        method = member.symbol
        if isinstance(method, Function) and not name.startswith("_") and not method.decorators:
            taken[name] = method.parameters
    return taken


def differ(own: Sequence[Parameter], others: Sequence[Parameter]) -> bool:
    """Whether a call written for `own` may bind to other parameters of `others`, or meet other defaults there."""
    if any(parameter.kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD) for parameter in own):
        return False  # opaque: nothing is known of what it took
    positional = [parameter for parameter in own if parameter.positional]
    theirs = [parameter for parameter in others if parameter.positional]
    by_name = {parameter.name: parameter for parameter in others}
    for parameter, other in zip_longest(positional, theirs[: len(positional)]):
        if other is None or parameter.name != other.name:
            return True
    return any(one.name in by_name and one.default != by_name[one.name].default for one in own)


def written(value: Callable[..., Any], parameters: Sequence[Parameter], name: str, release: str) -> Callable[..., Any]:
    """`value` with the positional order and the defaults of `parameters`; what it takes besides, by keyword alone."""
    accepted = inspect.signature(value).parameters
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in accepted.values()):
        return value
    declared: dict[str, inspect.Parameter] = {}
    last = max((at for at, parameter in enumerate(parameters) if parameter.name in accepted), default=-1)
    gone: list[str] = []
    for parameter in parameters[: last + 1]:
        kind = inspect._ParameterKind(int(parameter.kind))
        if parameter.name in accepted:
            default = _default(parameter, accepted[parameter.name], name)
        elif parameter.positional:
            # It keeps its place, so that those behind it keep theirs.
            gone.append(parameter.name)
            default = inspect.Parameter.empty if parameter.default is None else _GONE
        else:
            continue
        declared[parameter.name] = inspect.Parameter(parameter.name, kind, default=default)
    ours, theirs = list(declared.values()), list(accepted.values())
    if [_taken(one) for one in ours] == [_taken(one) for one in theirs[: len(ours)]]:
        return value
    by_keyword = {
        key: parameter if key == "self" else parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for key, parameter in accepted.items()
    }
    function = GeneratedFunction(value, by_keyword, name, release)
    function.parameters = {**declared, **{key: one for key, one in by_keyword.items() if key not in declared}}
    for parameter_name in gone:
        refuse = function.named("refuse", _refuse(f"{name}({parameter_name})", release))
        function.check(f"if {parameter_name} is not {function.named('gone', _GONE)}: {refuse}()")
    return function.compiled()


#: The default of a parameter that the installed release does not have any more.
_GONE: Any = type("_Gone", (), {"__repr__": lambda self: "<gone>"})()


def _taken(parameter: inspect.Parameter) -> tuple[Any, ...]:
    return parameter.name, parameter.default, parameter.kind


def _refuse(what: str, release: str) -> Callable[[], None]:
    def refuse() -> None:
        raise UnsupportedArgument(
            f"{what}: FlashInfer {release} took it; installed is {namespace.selected.installed}, which has it no more. "
            "Leave it out, and pass what comes behind it by keyword."
        )

    return refuse


def _default(parameter: Parameter, accepted: inspect.Parameter, name: str) -> Any:
    """The default that a parameter had, of which the source text is recorded."""
    if parameter.default is None:
        return inspect.Parameter.empty
    if parameter.default.startswith(("field(", "dataclasses.field(")):
        return accepted.default  # a dataclass makes a new one for each object
    module = sys.modules.get(f"{PACKAGE}.{name.rpartition('.')[0]}")
    try:
        return eval(parameter.default, dict(vars(module)) if module else {})
    except (NameError, AttributeError, SyntaxError):
        return accepted.default  # it is made of names that this release lacks


def _below_root(dotted: str) -> str:
    return dotted.removeprefix(f"{PACKAGE}.")

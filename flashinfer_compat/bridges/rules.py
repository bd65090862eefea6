"""Rules for single parameters of a function or method: what a caller may pass, and what becomes of it.

A rule applies where the native signature lacks its parameter, so a release about which nothing is known settles it by
itself.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UnsupportedArgument
from ..lines import Line
from ..support import MISSING, Support

if TYPE_CHECKING:
    from .signatures import GeneratedFunction

Parameters = Mapping[str, inspect.Parameter]


@dataclass(frozen=True, kw_only=True)
class Rule(Line):
    """A line about parameters of a function or method. `adds` maps each keyword it adds to its default.

    `about` says what the line decides where that is not whole parameters: ``"seed per row"``, a parameter's name first.
    """

    outcome: ClassVar[Support]
    adds: Mapping[str, Any] = field(default_factory=dict)
    about: tuple[str, ...] = ()

    def applies(self, native: Parameters) -> bool:
        """Whether the installed signature needs this rule."""
        return any(name not in native for name in self.adds)

    @property
    def subject(self) -> tuple[str, ...]:
        """The parameters whose outcome is decided here."""
        return self.about or tuple(self.adds)

    def write(self, function: GeneratedFunction) -> None:
        """Add to the generated function what this rule does; the keywords of `adds` are declared already."""

    def support(self, native: Any) -> Support:
        """The outcome, given the installed parameters (`native_parameters`) or `MISSING`."""
        return Support.NATIVE if native is not MISSING and not self.applies(native) else self.outcome


@dataclass(frozen=True, kw_only=True)
class Refuse(Rule):
    """A keyword that cannot be had: dropped at its default, refused at any other value."""

    outcome: ClassVar[Support] = Support.UNAVAILABLE

    since: str
    instead: str

    def write(self, function: GeneratedFunction) -> None:
        for keyword, default in self.adds.items():
            message = function.message(f"({keyword}=)", since=self.since, instead=self.instead)
            check = function.named("refuse", _unless_equal(default, message))
            # None by its name is one instruction less.
            known = "None" if default is None else function.named("default", default)
            function.check(f"if {keyword} is not {known}: {check}({keyword})")


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

    @property
    def since(self) -> str:
        """The release that has all of the values."""
        return list(self.values.values())[-1]

    def write(self, function: GeneratedFunction) -> None:
        messages = {
            value: function.message(f"({self.parameter}={value!r})", since=since, instead=self.instead)
            for value, since in self.values.items()
        }
        table = function.named("refused", messages)
        function.check(
            f"if {self.parameter} in {table}: {function.named('refuse', _refuse)}({table}[{self.parameter}])"
        )


@dataclass(frozen=True, kw_only=True)
class RefuseWhen(Rule):
    """Arguments that only later releases understand, where `when` is true of them. Its parameters are the call's."""

    outcome: ClassVar[Support] = Support.UNAVAILABLE

    when: Callable[..., bool]
    since: str
    instead: str

    def applies(self, native: Parameters) -> bool:
        return True

    def write(self, function: GeneratedFunction) -> None:
        call = f"{function.named('when', self.when)}({', '.join(inspect.signature(self.when).parameters)})"
        message = function.message(f"({', '.join(self.about)})", since=self.since, instead=self.instead)
        function.check(f"if {call}: {function.named('refuse', _refuse)}({function.named('message', message)})")


@dataclass(frozen=True, kw_only=True)
class Ignore(Rule):
    """A keyword that only promises speed: accepted, and reported as ignored."""

    outcome: ClassVar[Support] = Support.IGNORED


@dataclass(frozen=True, kw_only=True)
class Emulate(Rule):
    """Keywords honoured by another route.

    `via` names among its own parameters what it takes of the call (``self`` included), unless `takes` does, and returns
    the new values of `gives`, a tuple if there are several. With `after` it runs behind the native call; `where`, an
    expression over the parameters, says for which calls it is needed at all.
    """

    outcome: ClassVar[Support] = Support.EMULATED

    via: Callable[..., Any]
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    after: bool = False
    where: str = ""

    @property
    def taken(self) -> tuple[str, ...]:
        """The call's parameters that `via` gets, in order."""
        return self.takes or tuple(inspect.signature(self.via).parameters)

    def write(self, function: GeneratedFunction) -> None:
        call = f"{function.named('via', self.via)}({', '.join(self.taken)})"
        statement = f"{', '.join(self.gives)} = {call}" if self.gives else call
        if self.where:
            statement = f"if {self.where}: {statement}"
        function.after(statement) if self.after else function.before(statement)


@dataclass(frozen=True, kw_only=True)
class Default(Rule):
    """A native `parameter` whose default the newest release changed: `default` stands for `means()` on this release.

    Without `means` it stands for the native default.
    """

    outcome: ClassVar[Support] = Support.EMULATED

    parameter: str
    default: Any
    means: Callable[[], Any] | None = None

    def applies(self, native: Parameters) -> bool:
        return self.parameter in native and native[self.parameter].default != self.default

    @property
    def subject(self) -> tuple[str, ...]:
        return (self.parameter,)

    def write(self, function: GeneratedFunction) -> None:
        native = function.parameters[self.parameter]
        value = function.named("native", native.default) if self.means is None else function.named("means", self.means)
        call = value if self.means is None else f"{value}()"
        function.parameters[self.parameter] = native.replace(default=self.default)
        test = "is None" if self.default is None else f"== {self.default!r}"
        function.before(f"if {self.parameter} {test}: {self.parameter} = {call}")


@dataclass(frozen=True, kw_only=True)
class Renamed(Rule):
    """A parameter that the newest release calls `parameter` and older ones `was`: taken under both, on all of them."""

    outcome: ClassVar[Support] = Support.EMULATED

    parameter: str
    was: str

    def applies(self, native: Parameters) -> bool:
        return self.parameter in native or self.was in native

    @property
    def subject(self) -> tuple[str, ...]:
        return (self.parameter, self.was)

    def support(self, native: Any) -> Support:
        return super().support(native) if native is MISSING or self.parameter not in native else Support.NATIVE

    def write(self, function: GeneratedFunction) -> None:
        if self.was in function.parameters:
            function.rename(self.was, self.parameter)
        default = function.parameters[self.parameter].default
        if default is inspect.Parameter.empty:
            default = _UNSET
            function.may_be_left_out(self.parameter, _UNSET, _missing)
        function.declare({self.was: _UNSET})
        take = function.named("renamed", _renamed(self.parameter, self.was, default))
        unset = function.named("unset", _UNSET)
        function.first(f"if {self.was} is not {unset}: {self.parameter} = {take}({self.parameter}, {self.was})")


@dataclass(frozen=True, kw_only=True)
class AnswerNo(Rule):
    """Keywords that narrow a question, which this release lacks: any value but the default has no kernel here."""

    outcome: ClassVar[Support] = Support.EMULATED

    def write(self, function: GeneratedFunction) -> None:
        for keyword, default in self.adds.items():
            function.check(f"if {keyword} != {function.named('default', default)}: return False")


@dataclass(frozen=True, kw_only=True)
class Keep(Rule):
    """A keyword kept in `target`, an attribute, during the native call, for a mechanism behind it."""

    outcome: ClassVar[Support] = Support.EMULATED
    target: str

    def write(self, function: GeneratedFunction) -> None:
        (keyword,) = self.adds
        function.before(f"{self.target} = {keyword}")
        function.finally_(f"{self.target} = None")


@dataclass(frozen=True, kw_only=True)
class Convert(Emulate):
    """An `Emulate` that adds no keyword: native arguments are checked, or put into the form that this release needs.

    Left out where the native function takes the parameter `unless`: it then does so itself; and where `needed`, which
    looks at the installed release, says that it is not.
    """

    unless: str = ""
    needed: Callable[[], bool] | None = None

    def applies(self, native: Parameters) -> bool:
        return self.unless not in native and (self.needed is None or self.needed())

    @property
    def subject(self) -> tuple[str, ...]:
        return self.about or (() if self.after else tuple(name for name in self.taken if name != "self"))


@dataclass(frozen=True, kw_only=True)
class Check(Convert):
    """A `Convert` that only looks: `via` raises before anything is done, on arguments that no release takes rightly."""

    outcome: ClassVar[Support] = Support.NATIVE

    def write(self, function: GeneratedFunction) -> None:
        function.check(f"{function.named('check', self.via)}({', '.join(self.taken)})")


@dataclass(frozen=True, kw_only=True)
class Contiguous(Rule):
    """Tensors that this release reads through raw pointers as if dense; with `or_numbers` they may be numbers too."""

    outcome: ClassVar[Support] = Support.EMULATED

    parameters: tuple[str, ...]
    or_numbers: bool = False
    unless: str = ""

    def applies(self, native: Parameters) -> bool:
        return self.unless not in native

    @property
    def subject(self) -> tuple[str, ...]:
        return self.parameters

    def write(self, function: GeneratedFunction) -> None:
        for tensor in self.parameters:
            required = function.parameters[tensor].default is inspect.Parameter.empty
            test = f"if hasattr({tensor}, 'contiguous'): " if self.or_numbers else f"if {tensor} is not None: "
            function.before(f"{'' if required and not self.or_numbers else test}{tensor} = {tensor}.contiguous()")


@dataclass(frozen=True, kw_only=True)
class Reroute(Rule):
    """Keywords honoured by another callable: `through` makes it from the native one, and takes them by keyword.

    With no keyword to add, the other callable takes the native one's place on whatever release has this line.
    """

    outcome: ClassVar[Support] = Support.EMULATED

    through: Callable[[Callable[..., Any]], Callable[..., Any]]

    def applies(self, native: Parameters) -> bool:
        return not self.adds or super().applies(native)

    def write(self, function: GeneratedFunction) -> None:
        function.reroute(self.through, tuple(self.adds))


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

    def write(self, function: GeneratedFunction) -> None:
        star = function.keep_back_tail()
        defaults = function.named("defaults", tuple(function.parameters[keyword].default for keyword in self.tail))
        tail = ", ".join(self.tail)
        merge = function.named("merge", self.merge)
        function.first(f"if {star}: {tail} = {merge}({star}, ({tail}), {defaults})")
        # Its frames pass **kwargs on from one to the next: the fewer the cheaper.
        function.forward_given_only()


@dataclass(frozen=True, kw_only=True)
class ForwardGiven(Rule):
    """A function that warns of positional arguments: what is given is passed on by keyword."""

    outcome: ClassVar[Support] = Support.NATIVE
    needed: Callable[[], bool]

    def applies(self, native: Parameters) -> bool:
        return self.needed()

    def write(self, function: GeneratedFunction) -> None:
        function.forward_given_only()


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

    def write(self, function: GeneratedFunction) -> None:
        function.keyword_only(self.parameters)


def new(since: str, source: str, *, instead: str = "Leave it at its default.", **defaults: Any) -> Refuse:
    """Keywords, each with its default, that `since` brought (in FlashInfer's file `source`) and nothing replaces."""
    return Refuse(adds=defaults, since=since, instead=instead, note=f"new in {since} ({source})")


def new_values(since: str, source: str, *, instead: str = "Leave it at its default.", **values: Any) -> RefuseValues:
    """Values of one keyword that `since` brought: ``backend=("cake",)``."""
    ((parameter, several),) = values.items()
    return RefuseValues(
        parameter=parameter,
        values=dict.fromkeys(several, since),
        instead=instead,
        note=f"new in {since} ({source})",
    )


def native_parameters(native: Callable[..., Any], rules: Iterable[Rule], owner: type | None = None) -> Parameters:
    """What `native` accepts, opaque keywords spelled out."""
    parameters: Parameters = inspect.signature(native).parameters
    for rule in rules:
        if isinstance(rule, SpellOut) and owner is not None and rule.applies(parameters):
            parameters = rule.spelled(parameters, owner)
    if hasattr(native, "is_backend_supported"):
        # Taken by the decorator backend_requirement (utils.py), behind the signature that it shows.
        skip_check = inspect.Parameter("skip_check", inspect.Parameter.KEYWORD_ONLY, default=False)
        parameters = dict(sorted({"skip_check": skip_check, **parameters}.items(), key=lambda item: item[1].kind))
    return parameters


#: What a parameter has that the caller did not give.
_UNSET: Any = type("_Unset", (), {"__repr__": lambda self: "<not given>"})()


def _renamed(parameter: str, was: str, default: Any) -> Callable[[Any, Any], Any]:
    def take(new: Any, old: Any) -> Any:
        if new is not default:
            raise UnsupportedArgument(
                f"{parameter} and {was}, its former name, are both given. Pass {parameter} alone."
            )
        # Above are the generated function and its caller.
        warnings.warn(f"{was} is called {parameter} by the newest FlashInfer", DeprecationWarning, stacklevel=3)
        return old

    return take


def _missing(parameter: str) -> None:
    raise TypeError(f"missing required argument: {parameter!r}")


def _unless_equal(default: Any, message: str) -> Callable[[Any], None]:
    def refuse(value: Any) -> None:
        # An equal scalar is the default, whatever its identity (0 for False); a tensor never is.
        if not (isinstance(value, (bool, int, float, str)) and value == default):
            _refuse(message)

    return refuse


def _refuse(message: str) -> None:
    raise UnsupportedArgument(message)

"""What each release makes of each adapted name and parameter, from the recorded surfaces: FlashInfer is not needed."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .adapters import RELEASES, Release
from .adapters.model import split
from .bridges.classes import Extended
from .bridges.names import Added
from .bridges.rules import Convert, Rule
from .lines import Line, NameLine, Noted
from .support import MISSING, Support
from .surfaces import store
from .surfaces.model import Class, Function, Parameter, Surface


@dataclass(frozen=True)
class Row:
    """One line's subject: the outcome on each release, None where that has not even the function or class.

    `settled` unless only a look at the installed FlashInfer tells whether the line is needed there.
    """

    key: str
    subject: str
    note: str
    settled: bool
    outcomes: Mapping[str, Support | None]

    @property
    def name(self) -> str:
        return f"{self.key}({self.subject})" if self.subject else self.key


def rows() -> list[Row]:
    """Every subject of every line of the tables, ordered by name.

    Where only looking at the installed FlashInfer tells whether a line is needed, it is taken to be.
    """
    found: dict[tuple[str, str], tuple[Line, dict[str, Support | None]]] = {}
    # The oldest release's table has every newer one's lines.
    for key, lines in RELEASES[0].adapter.lines.items():
        for line in lines:
            for subject in subjects(line):
                _, outcomes = found.setdefault((key, subject), (line, {}))
                for release in RELEASES:
                    outcome = outcome_of(line, key, subject, release)
                    outcomes[release.version] = worse(outcomes.get(release.version, outcome), outcome)
    return [
        Row(key, subject, line.note, settled(line), outcomes)
        for (key, subject), (line, outcomes) in sorted(found.items(), key=_by_name)
    ]


def outcome_of(line: Line, key: str, subject: str, release: Release) -> Support | None:
    """What `release` makes of a `subject` of a line of `key`."""
    surface = store.open_surface(release.version)
    name, _ = split(key)
    own = release.adapter.lines.get(name, ())
    supplied = surface.find(name) is None and any(isinstance(one, NameLine) and one.supplies for one in own)
    holder = surface.find(name) is not None or supplied or any(isinstance(one, Added) for one in own)
    taken = parameters(surface, key)
    if line not in release.adapter.lines.get(key, ()):
        if not holder or (taken is not None and subject.isidentifier() and subject not in taken):
            return None  # a parameter may be one that only older releases have
        return Support.EMULATED if supplied else Support.NATIVE
    if isinstance(line, Noted):
        return line.outcome if holder else None
    if isinstance(line, Extended) and supplied:
        return None  # it extends FlashInfer's own class, not what is in its place
    if isinstance(line, Rule):
        if taken is None:
            return None
        return line.support(taken) if settled(line) else line.outcome
    return line.support(MISSING if surface.find(name) is None else object())


def releases_with(name: str, method: str = "", parameter: str = "") -> list[Release]:
    """The supported releases that are recorded to have a name, a method of it, a parameter."""
    found = []
    for release in RELEASES:
        surface = store.open_surface(release.version)
        if parameter:
            has = parameter in (parameters(surface, f"{name}.{method}" if method else name) or ())
        else:
            holder = surface.find(name)
            has = holder is not None and (not method or surface.member(holder, method) is not None)
        if has:
            found.append(release)
    return found


def settled(line: Line) -> bool:
    """Whether the recorded signature decides if the line is needed."""
    return not (isinstance(line, Convert) and line.needed is not None)


def subjects(line: Line) -> tuple[str, ...]:
    """The parameters that a line is about; ``""`` for the name as a whole."""
    if isinstance(line, Noted):
        return (line.parameter,)
    return line.subject if isinstance(line, Rule) else ("",)


@cache
def parameters(surface: Surface, key: str) -> Mapping[str, inspect.Parameter] | None:
    """What a function, method or constructor takes on a release, as `inspect` would say it; None where it is not."""
    name, method = split(key)
    found = surface.find(name)
    if found is None:
        return None
    if isinstance(found.symbol, Class):
        if method == "__init__":
            own = surface.constructor(found)
            return None if own is None else _inspected((Parameter("self"), *own))
        found = surface.member(found, method) if method else None
    if found is None or not isinstance(found.symbol, Function):
        return None
    return _inspected(found.symbol.parameters)


def worse(one: Support | None, other: Support | None) -> Support | None:
    """Of two lines about one subject the one that says less."""
    order = list(Support)
    return max((outcome for outcome in (one, other) if outcome is not None), key=order.index, default=None)


def families() -> Iterator[tuple[str, list[Row]]]:
    """The rows of each of FlashInfer's modules."""
    grouped: dict[str, list[Row]] = {}
    for row in rows():
        grouped.setdefault(row.key.partition(".")[0] if "." in row.key else "flashinfer", []).append(row)
    yield from sorted(grouped.items())


def _inspected(taken: tuple[Parameter, ...]) -> Mapping[str, inspect.Parameter]:
    # No inspect.Signature: a decorated function may take a required parameter behind an optional one.
    return {
        one.name: inspect.Parameter(
            one.name,
            inspect._ParameterKind(int(one.kind)),
            default=_value(one.default),
            annotation=one.annotation or inspect.Parameter.empty,
        )
        for one in taken
    }


def _value(text: str | None) -> Any:
    """A recorded default: its value where it is a literal, its text where it is not."""
    if text is None:
        return inspect.Parameter.empty
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _by_name(item: tuple[tuple[str, str], Any]) -> tuple[str, str]:
    return item[0]

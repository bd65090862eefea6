"""What an adapter is: a release and its table of lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..bridges.classes import Extended, FacadeObject, Follows, derive
from ..bridges.rules import Rule
from ..bridges.signatures import adapt
from ..lines import Line, NameLine
from ..support import MISSING, Support

#: A table of one of FlashInfer's domains: dotted public name -> its line or lines.
Lines = Mapping[str, Line | Iterable[Line]]


@dataclass(frozen=True)
class Adapter:
    """One release's table. `inferred` where the release could not be read and is concluded from its neighbours."""

    release: str
    lines: Mapping[str, tuple[Line, ...]]
    inferred: bool = False

    @classmethod
    def newest(cls, release: str, *tables: Lines) -> Adapter:
        return cls(release, {}).older(release, *tables)

    def older(self, release: str, *tables: Lines, inferred: bool = False) -> Adapter:
        """The release before this one: all lines of this one, and its own."""
        merged = dict(self.lines)
        for table in tables:
            for key, line in table.items():
                merged[key] = (*merged.get(key, ()), *_several(line))
        return Adapter(release, merged, inferred)

    @cached_property
    def names(self) -> dict[str, dict[str, tuple[Line, ...]]]:
        """Each name that a module holds -> its lines by method (``""`` for the name itself)."""
        grouped: dict[str, dict[str, tuple[Line, ...]]] = {}
        for key, lines in self.lines.items():
            name, method = split(key)
            grouped.setdefault(name, {})[method] = lines
        return grouped

    def available(self, name: str, native: Any) -> bool:
        """Whether `bind` gives an object for `name`."""
        own = self._own(name)
        return all(line.support(native) is not Support.UNAVAILABLE for line in own) if own else native is not MISSING

    def _own(self, name: str) -> list[NameLine]:
        return [line for line in self.names[name].get("", ()) if isinstance(line, NameLine)]

    def refuses(self, name: str) -> bool:
        """Whether a line may say of the whole name that this release lacks it."""
        return any(
            line.support(MISSING) is Support.UNAVAILABLE and not isinstance(line, (Extended, Follows))
            for line in self._own(name)
        )

    def instead(self, name: str) -> str:
        """What a line that refuses the whole name says to do."""
        told = [
            getattr(line, "instead", "") for line in self._own(name) if line.support(MISSING) is Support.UNAVAILABLE
        ]
        return told[0] if told else ""

    def bind(self, name: str, native: Any, facade_object: FacadeObject) -> Any:
        """The facade's object for `name`, given FlashInfer's own or `MISSING`; `facade_object` finds others'."""
        by_method = self.names[name]
        own = by_method.get("", ())
        value = native
        for line in own:
            if isinstance(line, NameLine):
                value = line.bind(value, name, self.release)
        if value is MISSING or not callable(value):
            return value  # None stands for what FlashInfer could not import
        if isinstance(value, type):
            extending = [line for line in own if isinstance(line, (Extended, Follows))]
            methods = {method: _rules(lines) for method, lines in by_method.items() if method}
            return derive(value, extending, methods, name=name, release=self.release, facade_object=facade_object)
        rules = _rules(own)
        return adapt(value, rules, name=name, release=self.release) if rules else value


def split(key: str) -> tuple[str, str]:
    """``"prefill.Wrapper.plan"`` -> (``"prefill.Wrapper"``, ``"plan"``); ``"decode.f"`` -> (``"decode.f"``, ``""``)."""
    parts = key.split(".")
    for index, part in enumerate(parts):
        if part.lstrip("_")[:1].isupper():
            return ".".join(parts[: index + 1]), ".".join(parts[index + 1 :])
    return key, ""


def _several(line: Line | Iterable[Line]) -> tuple[Line, ...]:
    return (line,) if isinstance(line, Line) else tuple(line)


def _rules(lines: Iterable[Line]) -> list[Rule]:
    return [line for line in lines if isinstance(line, Rule)]

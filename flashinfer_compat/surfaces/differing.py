"""The symbols whose surface differs between releases, each under one name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from . import breakages as kinds
from .breakages import Breakage
from .diff import diff
from .model import PACKAGE, Surface


def _is_noticed(breakage: Breakage) -> bool:
    """Not what an annotation says, in which module a definition lies, or one more attribute of an object."""
    if isinstance(breakage, kinds.Added):
        return breakage.what != "attribute"
    return not isinstance(breakage, (kinds.AnnotationChanged, kinds.DefinedElsewhere))


@dataclass(frozen=True)
class Differing:
    """One symbol that differs: `name` as an adapter's table writes it, and all `names` that it was asked for under.

    `definition` is where the newest release that has it defines it.
    """

    name: str
    definition: str
    names: frozenset[str]
    breakages: tuple[tuple[str, Breakage], ...]

    @property
    def only_added(self) -> bool:
        """Whether all there is to say is that older releases lack it."""
        return all(isinstance(breakage, kinds.Added) for _, breakage in self.breakages)


def differing(surfaces: Sequence[Surface], names: Iterable[str]) -> list[Differing]:
    """Those of `names`, and of their public members, that differ between two neighbours among `surfaces`.

    Names of one definition are one symbol. Each breakage comes with the release in which it appeared.
    """
    names = list(names)
    found: dict[str, dict[str, list[tuple[str, Breakage]]]] = {}
    for old, new in pairwise(surfaces):
        for breakage in diff(old, new, names):
            if _is_noticed(breakage):
                by_name = found.setdefault(definition_of(surfaces, breakage.symbol), {})
                by_name.setdefault(_key(breakage.symbol), []).append((new.version, breakage))
    symbols = []
    for definition, by_name in sorted(found.items()):
        # The name under which the definition lies, if it is one of those asked for; else the shortest of its package's.
        def preference(name: str, definition: str = definition) -> tuple[bool, bool, bool, int, str]:
            elsewhere = name.partition(".")[0] != definition.partition(".")[0]
            return name != definition, elsewhere, not _in_module(surfaces, name), len(name), name

        name = min(by_name, key=preference)
        symbols.append(Differing(name, definition, frozenset(by_name), tuple(by_name[name])))
    return sorted(symbols, key=lambda symbol: symbol.name)


def definition_of(surfaces: Sequence[Surface], symbol: str) -> str:
    """Where the newest release that has the symbol defines it; a constructor's place is below its class's."""
    holder = symbol.removesuffix(".__init__")
    for surface in reversed(surfaces):
        found = surface.find(holder)
        if found is not None:
            return _key(found.dotted + symbol[len(holder) :])
    return _key(symbol)


def _in_module(surfaces: Sequence[Surface], name: str) -> bool:
    holder = f"{PACKAGE}.{name.partition('.')[0]}"
    return "." in name and any(holder in surface.modules for surface in surfaces)


def _key(symbol: str) -> str:
    return symbol.removeprefix(f"{PACKAGE}.")

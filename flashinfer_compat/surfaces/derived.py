"""0.7.3, which is on no index: what its neighbours agree on, and what upstream's pull requests state.

Where the neighbours agree the surface is inferred. Where they differ a fact says which one it is like, known or
inferred as the fact is; without a fact it is unknown, and the older neighbour's is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from . import store
from .model import PACKAGE, Class, Metadata, Module, Source, Surface, Symbol, json_line


@dataclass(frozen=True)
class Fact:
    """What is stated of one symbol: it is as in the release `as_in`."""

    symbol: str
    as_in: str
    provenance: str
    source: str


class DerivedSurface(Surface):
    """The surface of a release between two recorded ones."""

    def __init__(self, metadata: Metadata, older: Surface, newer: Surface, facts: tuple[Fact, ...]) -> None:
        self.older = older
        self.newer = newer
        self.neighbours = (older, newer)
        self.facts = {fact.symbol: fact for fact in facts}
        super().__init__(metadata, _Mixed(self))

    def provenance(self, symbol: str) -> str:
        """``known``, ``inferred`` or ``unknown``: of a dotted name, or a C++ ``file:function``."""
        fact = self.fact(symbol)
        if fact is not None:
            return fact.provenance
        return "inferred" if self.neighbours_agree(symbol) else "unknown"

    def fact(self, symbol: str) -> Fact | None:
        """The fact about a symbol, under this name or where it is defined, or about what it is a part of."""
        separator = ":" if "/" in symbol else "."
        definitions = [found.dotted for surface in self.neighbours if (found := surface.find(symbol))]
        for name in (symbol, *(definitions if "/" not in symbol else ())):
            while name:
                if name in self.facts:
                    return self.facts[name]
                name = name.rpartition(separator)[0]
        return None

    def neighbours_agree(self, symbol: str) -> bool:
        if "/" in symbol:
            file, _, function = symbol.partition(":")
            sources = [surface.sources.get(file) or Source(file) for surface in self.neighbours]
            held = [(one.exports.get(function, ...), one.templates.get(function, ...)) for one in sources]
            return held[0] == held[1] if function else sources[0] == sources[1]
        if not symbol.startswith(PACKAGE):  # a distribution
            older, newer = ({line for line in one.metadata.requires_dist if symbol in line} for one in self.neighbours)
            return older == newer
        return _held(self.older, symbol) == _held(self.newer, symbol)


def _held(surface: Surface, symbol: str) -> object:
    """What a release holds under a dotted name; of a member its own definition: the rest of its class may differ."""
    holder, _, name = symbol.rpartition(".")
    owner = surface.find(holder) if holder else None
    if name == "__init__" and owner is not None:
        return surface.constructor(owner), surface.accepts(owner)
    found = surface.find(symbol)
    if found is not None:
        return found.symbol
    return owner is not None and name in surface.attributes(owner)


class _Mixed(Mapping[str, str]):
    """The lines of a derived surface, put together when they are asked for."""

    def __init__(self, surface: DerivedSurface) -> None:
        self._surface = surface
        older, newer = surface.older.lines, surface.newer.lines
        stated_gone = {fact.symbol for fact in surface.facts.values() if fact.as_in == surface.newer.version}
        stated_there = {key for key in stated_gone if key in newer}
        self._keys = dict.fromkeys(
            key for key in sorted({*older, *stated_there}) if key not in stated_gone or key in newer
        )

    def __getitem__(self, key: str) -> str:
        if key not in self._keys:
            raise KeyError(key)
        older, newer = self._surface.older.lines.get(key), self._surface.newer.lines.get(key)
        if older is None or newer is None or older == newer:
            return older or newer or ""
        return json_line((self._source(key) if "/" in key else self._module(key)).encoded())

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def _module(self, name: str) -> Module:
        older, newer = self._surface.older.modules[name], self._surface.newer.modules[name]
        return replace(older, symbols=self._symbols(name, older.symbols, newer.symbols))

    def _symbols(self, holder: str, older: Mapping[str, Symbol], newer: Mapping[str, Symbol]) -> dict[str, Symbol]:
        """The older neighbour's, but for those of which the newer's is stated."""
        mixed = dict(older)
        for name in [*older, *(name for name in newer if name not in older)]:
            dotted = f"{holder}.{name}"
            before, after = older.get(name), newer.get(name)
            if self._as_newer(dotted):
                mixed.pop(name, None)
                mixed |= {} if after is None else {name: after}
            elif isinstance(before, Class) and isinstance(after, Class):
                mixed[name] = replace(before, members=self._symbols(dotted, before.members, after.members))
        return mixed

    def _source(self, file: str) -> Source:
        older, newer = self._surface.older.sources[file], self._surface.newer.sources[file]
        exports, templates = dict(older.exports), dict(older.templates)
        for name in {*exports, *templates, *newer.exports, *newer.templates}:
            if self._as_newer(f"{file}:{name}"):
                exports.pop(name, None)
                templates.pop(name, None)
                exports |= {name: newer.exports[name]} if name in newer.exports else {}
                templates |= {name: newer.templates[name]} if name in newer.templates else {}
        return Source(file, exports, templates)

    def _as_newer(self, symbol: str) -> bool:
        fact = self._surface.facts.get(symbol)
        return fact is not None and fact.as_in == self._surface.newer.version


@cache
def derive(release: str) -> DerivedSurface:
    """The surface of a release in `store.DERIVED`."""
    stated = json.loads((files(__package__) / "data" / f"{release}.json").read_text(encoding="utf-8"))
    older, newer = (store.open_surface(neighbour) for neighbour in stated["between"])
    facts = tuple(Fact(**fact) for fact in stated["facts"])
    agreed = [line for line in newer.metadata.requires_dist if line in older.metadata.requires_dist]
    metadata = Metadata(release, older.metadata.requires_python, (*agreed, *stated["requires_dist"]))
    return DerivedSurface(metadata, older, newer, facts)

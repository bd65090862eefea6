"""In which supported releases a name, a parameter or an argument count exists, from the recorded surfaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from ..adapters import RELEASES
from ..surfaces import store
from ..surfaces.derived import DerivedSurface
from ..surfaces.model import PACKAGE, Class, Found, Function, Kind, Parameter, Surface
from ..surfaces.names import public_names

VERSIONS = tuple(release.version for release in RELEASES)


@cache
def surface(version: str) -> Surface:
    return store.open_surface(version)


def having(test: Callable[[Surface], object]) -> tuple[str, ...]:
    """The supported releases of whose surface `test` is true."""
    return tuple(version for version in VERSIONS if test(surface(version)))


def told(versions: tuple[str, ...]) -> str:
    """Releases as text; one that is concluded from its neighbours is marked."""
    marked = [f"{one} (inferred)" if isinstance(surface(one), DerivedSurface) else one for one in versions]
    return ", ".join(marked) or "no supported release"


def find(version: str, dotted: str) -> Found | None:
    return surface(version).find(dotted)


def called(tail: str) -> list[str]:
    """The dotted names that end in `tail` ("Wrapper.plan", "rmsnorm"), public modules and short names first."""
    first, _, rest = tail.partition(".")
    found: set[str] = set()
    for version in VERSIONS:
        for name, line in surface(version).lines.items():
            if "/" in name or f'"{first}"' not in line or first not in surface(version).modules[name].symbols:
                continue
            # A bare "run" or "main" is anybody's; only a function that callers import is taken for FlashInfer's.
            if not rest and not first[:1].isupper() and f"{name}.{first}" not in _public(version):
                continue
            dotted = f"{name}.{tail}" if rest else f"{name}.{first}"
            target = surface(version).find(dotted)
            if target is not None and isinstance(target.symbol, (Function, Class)):
                found.add(target.dotted)
    return sorted(found, key=lambda dotted: ("._" in dotted, dotted.count("."), dotted))


@cache
def _public(version: str) -> frozenset[str]:
    return frozenset(public_names(surface(version)))


def parameters(found: Found | None, within: Surface) -> tuple[tuple[Parameter, ...], frozenset[str]] | None:
    """What a function, or a class's constructor, takes, and the keywords that only its decorator takes."""
    if found is None:
        return None
    symbol = found.symbol
    if isinstance(symbol, Class):
        constructor = within.member(found, "__init__")
        if constructor is None or not isinstance(constructor.symbol, Function):
            return (symbol.own_fields, frozenset(symbol.accepts)) if symbol.is_dataclass else None
        symbol = constructor.symbol
    return (symbol.parameters, frozenset(symbol.accepts)) if isinstance(symbol, Function) else None


def accepts(within: Surface, dotted: str, keyword: str) -> bool:
    """Whether the callable takes the keyword."""
    taken = parameters(within.find(dotted), within)
    if taken is None:
        return False
    listed, decorated = taken
    return keyword in decorated or any(
        one.name == keyword or one.kind is Kind.VAR_KEYWORD for one in listed if one.kind is not Kind.POSITIONAL_ONLY
    )


def elsewhere(version: str, name: str) -> list[str]:
    """Where a release defines something of that name."""
    return [dotted for dotted in called(name) if find(version, dotted) is not None]


def arities(version: str, function: str = "") -> Iterator[tuple[str, int]]:
    """The exported JIT functions with their argument counts, as ``file:function``."""
    for file, source in surface(version).sources.items():
        for name, arguments in source.exports.items():
            if arguments is not None and function in ("", name):
                yield f"{file}:{name}", len(arguments)


def templates(version: str, function: str) -> dict[str, tuple[str, ...]]:
    """Header -> the signatures of its function template of that name."""
    return {
        file: tuple(str(one) for one in source.templates[function])
        for file, source in surface(version).sources.items()
        if function in source.templates
    }


def short(dotted: str) -> str:
    return dotted.removeprefix(f"{PACKAGE}.")

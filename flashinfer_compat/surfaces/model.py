"""A release's surface as plain values: modules and the symbols in them, the C++ side, the wheel's metadata.

Texts (annotations, defaults, values) are source text in normal form; nothing here was imported or run. A symbol writes
itself as a JSON list, so that a release is compact and a module is decoded when it is first asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeVar

_T = TypeVar("_T")

#: The package whose surface is recorded.
PACKAGE = "flashinfer"


class Kind(IntEnum):
    """How a parameter is passed; the order is Python's own."""

    POSITIONAL_ONLY = 0
    POSITIONAL_OR_KEYWORD = 1
    VAR_POSITIONAL = 2
    KEYWORD_ONLY = 3
    VAR_KEYWORD = 4


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function, or a dataclass's field as its constructor takes it."""

    name: str
    kind: Kind = Kind.POSITIONAL_OR_KEYWORD
    annotation: str | None = None
    default: str | None = None

    @property
    def required(self) -> bool:
        return self.default is None and self.kind not in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)

    @property
    def positional(self) -> bool:
        return self.kind in (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD)

    def encoded(self) -> list[Any]:
        # The common kind is 0 here, and trimmed away.
        return _trimmed([self.name, self.annotation, self.default, self.kind - Kind.POSITIONAL_OR_KEYWORD])

    @classmethod
    def decoded(cls, name: str, annotation: str | None = None, default: str | None = None, kind: int = 0) -> Parameter:
        return cls(name, Kind(kind + Kind.POSITIONAL_OR_KEYWORD), annotation, default)

    def __str__(self) -> str:
        stars = {Kind.VAR_POSITIONAL: "*", Kind.VAR_KEYWORD: "**"}.get(self.kind, "")
        text = f"{stars}{self.name}" + (f": {self.annotation}" if self.annotation else "")
        return text if self.default is None else f"{text}{' = ' if self.annotation else '='}{self.default}"


@dataclass(frozen=True)
class Function:
    """A function or method.

    `accepts` maps keywords that only a decorator takes to those they stand for, or to nothing: it is the decorator's.
    """

    parameters: tuple[Parameter, ...] = ()
    returns: str | None = None
    decorators: tuple[str, ...] = ()
    accepts: Mapping[str, str] = field(default_factory=dict)
    overloads: tuple[Function, ...] = ()

    tag = "def"

    @property
    def is_property(self) -> bool:
        return any(name.rpartition(".")[2] in ("property", "cached_property") for name in self.decorators)

    @property
    def is_api(self) -> bool:
        """Marked `@flashinfer_api`: FlashInfer's own list of what it calls its API."""
        return "flashinfer_api" in self.decorators

    def encoded(self) -> list[Any]:
        overloads = [overload.encoded() for overload in self.overloads]
        parameters = [parameter.encoded() for parameter in self.parameters]
        return _trimmed([self.tag, parameters, self.returns, list(self.decorators), dict(self.accepts), overloads])

    @classmethod
    def decoded(
        cls,
        parameters: Sequence[Sequence[Any]] = (),
        returns: str | None = None,
        decorators: Sequence[str] | None = None,
        accepts: Mapping[str, str] | None = None,
        overloads: Sequence[Sequence[Any]] | None = None,
    ) -> Function:
        return cls(
            tuple(Parameter.decoded(*parameter) for parameter in parameters or ()),
            returns,
            tuple(decorators or ()),
            accepts or {},
            tuple(cls.decoded(*overload[1:]) for overload in overloads or ()),
        )

    def __str__(self) -> str:
        return f"({', '.join(_listed(self.parameters))})" + (f" -> {self.returns}" if self.returns else "")


@dataclass(frozen=True)
class Constant:
    """A module's or class's value: its source text, or its kind and a digest where that is long."""

    value: str | None = None
    annotation: str | None = None

    tag = "="

    def encoded(self) -> list[Any]:
        return _trimmed([self.tag, self.value, self.annotation])

    @classmethod
    def decoded(cls, value: str | None = None, annotation: str | None = None) -> Constant:
        return cls(value, annotation)


@dataclass(frozen=True)
class Alias:
    """A name bound to something defined elsewhere: ``module:name``, or ``module:`` for a module itself.

    `lazy` where a module's ``__getattr__`` finds it; `target` is None where only running that would tell.
    """

    target: str | None
    lazy: bool = False

    tag = "from"

    def encoded(self) -> list[Any]:
        return _trimmed([self.tag, self.target, int(self.lazy)])

    @classmethod
    def decoded(cls, target: str | None = None, lazy: int | None = 0) -> Alias:
        return cls(target, bool(lazy))


@dataclass(frozen=True)
class Class:
    """A class: its bases as written, what its body binds, and the attributes that its ``__init__`` sets."""

    bases: tuple[str, ...] = ()
    members: Mapping[str, Symbol] = field(default_factory=dict)
    decorators: tuple[str, ...] = ()
    accepts: Mapping[str, str] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()

    tag = "class"

    @property
    def is_dataclass(self) -> bool:
        return any(_dotted_tail(decorator) == "dataclass" for decorator in self.decorators)

    @property
    def is_enum(self) -> bool:
        return any(_dotted_tail(base) in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag") for base in self.bases)

    @property
    def own_fields(self) -> tuple[Parameter, ...]:
        """A dataclass's own fields, as its constructor takes them; none where the decorator writes no constructor."""
        decorator = next((text for text in self.decorators if _dotted_tail(text) == "dataclass"), None)
        if decorator is None or "init=False" in decorator:
            return ()
        kind = Kind.KEYWORD_ONLY if "kw_only=True" in decorator else Kind.POSITIONAL_OR_KEYWORD
        fields = []
        for name, member in self.members.items():
            if not isinstance(member, Constant) or member.annotation is None or _is_no_argument(member):
                continue
            if _dotted_tail(member.annotation) == "KW_ONLY":
                kind = Kind.KEYWORD_ONLY
                continue
            value = member.value or ""
            if value.startswith(("field(", "dataclasses.field(")):
                own_kind = Kind.KEYWORD_ONLY if "kw_only=True" in value else kind
                fields.append(Parameter(name, own_kind, member.annotation, value if "default" in value else None))
            else:
                fields.append(Parameter(name, kind, member.annotation, member.value))
        return tuple(fields)

    @property
    def enum_members(self) -> dict[str, str | None]:
        if not self.is_enum:
            return {}
        return {
            name: member.value
            for name, member in self.members.items()
            if isinstance(member, Constant) and not name.startswith("_") and member.annotation is None
        }

    def encoded(self) -> list[Any]:
        members = {name: member.encoded() for name, member in self.members.items()}
        decorators, attributes = list(self.decorators), list(self.attributes)
        return _trimmed([self.tag, list(self.bases), members, decorators, dict(self.accepts), attributes])

    @classmethod
    def decoded(
        cls,
        bases: Sequence[str] | None = None,
        members: Mapping[str, Sequence[Any]] | None = None,
        decorators: Sequence[str] | None = None,
        accepts: Mapping[str, str] | None = None,
        attributes: Sequence[str] | None = None,
    ) -> Class:
        decoded = {name: decode(member) for name, member in (members or {}).items()}
        return cls(tuple(bases or ()), decoded, tuple(decorators or ()), accepts or {}, tuple(attributes or ()))


Symbol = Function | Class | Constant | Alias
_DECODERS: dict[str, Callable[..., Symbol]] = {kind.tag: kind.decoded for kind in (Function, Class, Constant, Alias)}


def json_line(encoded: Sequence[Any]) -> str:
    return json.dumps(encoded, ensure_ascii=False, separators=(",", ":"))


def decode(encoded: Sequence[Any]) -> Symbol:
    """The symbol of a JSON list."""
    return _DECODERS[encoded[0]](*encoded[1:])


@dataclass(frozen=True)
class Module:
    """A module: what it binds, in source order, and its ``__all__`` where that can be read.

    `dynamic` where its ``__getattr__`` answers names that only running it would tell.
    """

    name: str
    symbols: Mapping[str, Symbol] = field(default_factory=dict)
    exports: tuple[str, ...] | None = None
    package: bool = False
    dynamic: bool = False

    def encoded(self) -> list[Any]:
        symbols = {name: symbol.encoded() for name, symbol in self.symbols.items()}
        exports = None if self.exports is None else list(self.exports)
        # __all__ may be an empty list, which is not None: it is not trimmed away.
        return [self.name, symbols, exports, int(self.package), int(self.dynamic)]

    @classmethod
    def decoded(
        cls,
        name: str,
        symbols: Mapping[str, Sequence[Any]],
        exports: Sequence[str] | None,
        package: int,
        dynamic: int,
    ) -> Module:
        decoded = {symbol_name: decode(symbol) for symbol_name, symbol in symbols.items()}
        return cls(name, decoded, None if exports is None else tuple(exports), bool(package), bool(dynamic))


@dataclass(frozen=True)
class Template:
    """A function template of a header: the texts between ``<>`` and between ``()``, one for each parameter."""

    parameters: tuple[str, ...]
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"template <{', '.join(self.parameters)}> ({', '.join(self.arguments)})"


@dataclass(frozen=True)
class Source:
    """A C++ file below ``flashinfer/``.

    `exports`: exported JIT function -> the C++ parameters behind it, None where no declaration was found. `templates`:
    function template -> its overloads; of headers only.
    """

    file: str
    exports: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    templates: Mapping[str, tuple[Template, ...]] = field(default_factory=dict)

    def encoded(self) -> list[Any]:
        exports = {name: None if found is None else list(found) for name, found in sorted(self.exports.items())}
        templates = {
            name: [[list(one.parameters), list(one.arguments)] for one in overloads]
            for name, overloads in sorted(self.templates.items())
        }
        return [self.file, exports, templates]

    @classmethod
    def decoded(
        cls, file: str, exports: Mapping[str, list[str] | None], templates: Mapping[str, list[list[list[str]]]]
    ) -> Source:
        return cls(
            file,
            {name: None if found is None else tuple(found) for name, found in exports.items()},
            {
                name: tuple(Template(tuple(parameters), tuple(arguments)) for parameters, arguments in overloads)
                for name, overloads in templates.items()
            },
        )


@dataclass(frozen=True)
class Metadata:
    """What the wheel says about itself."""

    version: str
    requires_python: str | None = None
    requires_dist: tuple[str, ...] = ()
    sha256: str | None = None

    def encoded(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "requires_python": self.requires_python,
            "requires_dist": list(self.requires_dist),
            "sha256": self.sha256,
        }

    @classmethod
    def decoded(cls, encoded: Mapping[str, Any]) -> Metadata:
        return cls(encoded["version"], encoded["requires_python"], tuple(encoded["requires_dist"]), encoded["sha256"])


@dataclass(frozen=True)
class Found:
    """A symbol and where it is defined: `module` and the path within it."""

    module: str
    path: str
    symbol: Symbol | Module

    @property
    def dotted(self) -> str:
        return f"{self.module}.{self.path}" if self.path else self.module


class Decoded(Mapping[str, _T]):
    """Values that are decoded from their JSON lines when they are first asked for."""

    def __init__(self, lines: Mapping[str, str], keys: Iterable[str], decoder: Callable[..., _T]) -> None:
        self._lines = lines
        self._values: dict[str, _T | None] = dict.fromkeys(keys)
        self._decoder = decoder

    def __getitem__(self, key: str) -> _T:
        value = self._values[key]
        if value is None:
            value = self._values[key] = self._decoder(*json.loads(self._lines[key]))
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Surface:
    """A release's recorded surface. `lines` holds each module's and each C++ file's JSON, decoded when first asked for.

    A key with a slash is a file's.
    """

    def __init__(self, metadata: Metadata, lines: Mapping[str, str]) -> None:
        self.metadata = metadata
        self.lines = lines
        self.modules: Mapping[str, Module] = Decoded(lines, [key for key in lines if "/" not in key], Module.decoded)
        self.sources: Mapping[str, Source] = Decoded(lines, [key for key in lines if "/" in key], Source.decoded)

    @property
    def version(self) -> str:
        return self.metadata.version

    def find(self, dotted: str) -> Found | None:
        """The definition behind a dotted name (``flashinfer.`` in front or not), through re-exports and bases."""
        parts = dotted.removeprefix(f"{PACKAGE}.").split(".") if dotted != PACKAGE else []
        for split in range(len(parts), -1, -1):
            module = ".".join([PACKAGE, *parts[:split]])
            # flashinfer.xqa is a module and a function of the package: an attribute wins, as it does at run time.
            if module in self.modules and not (split == len(parts) and parts and self._bound(parts)):
                found = self._within(module, parts[split:], frozenset())
                if found is not None:
                    return found
        return self._within(PACKAGE, parts, frozenset())

    def member(self, holder: Found, name: str, seen: frozenset[str] = frozenset()) -> Found | None:
        """The member `name` of a class, its own or a base's (in the order written)."""
        if not isinstance(holder.symbol, Class) or holder.dotted in seen:
            return None
        if name in holder.symbol.members:
            found = Found(holder.module, f"{holder.path}.{name}", holder.symbol.members[name])
            return self._resolved(found, seen | {holder.dotted})
        for base in self.bases(holder):
            inherited = self.member(base, name, seen | {holder.dotted})
            if inherited is not None:
                return inherited
        return None

    def members(self, holder: Found, seen: frozenset[str] = frozenset()) -> dict[str, Found]:
        """All members of a class, inherited ones included."""
        if not isinstance(holder.symbol, Class) or holder.dotted in seen:
            return {}
        found: dict[str, Found] = {}
        for base in reversed(self.bases(holder)):
            found |= self.members(base, seen | {holder.dotted})
        for name, member in holder.symbol.members.items():
            own = Found(holder.module, f"{holder.path}.{name}", member)
            resolved = self._resolved(own, seen | {holder.dotted})
            found[name] = resolved or own
        return found

    def attributes(self, holder: Found) -> list[str]:
        """The attributes that a class's and its bases' ``__init__`` set."""
        inherited = [name for base in self.bases(holder) for name in self.attributes(base)]
        own = holder.symbol.attributes if isinstance(holder.symbol, Class) else ()
        return list(dict.fromkeys([*inherited, *own]))

    def bases(self, holder: Found) -> list[Found]:
        """The bases of a class that are FlashInfer's own."""
        found = []
        for base in holder.symbol.bases if isinstance(holder.symbol, Class) else ():
            name = base.partition("[")[0]
            resolved = self._within(holder.module, name.split("."), frozenset())
            if resolved is not None and isinstance(resolved.symbol, Class) and resolved.dotted != holder.dotted:
                found.append(resolved)
        return found

    def constructor(self, holder: Found) -> tuple[Parameter, ...] | None:
        """The parameters of a class's constructor without ``self``; None where it takes ``object``'s or another's."""
        if not isinstance(holder.symbol, Class):
            return None
        own = holder.symbol.members.get("__init__")
        if isinstance(own, Function):
            return own.parameters[1:]
        inherited = [self.constructor(base) for base in self.bases(holder)]
        from_base = next((parameters for parameters in inherited if parameters is not None), None)
        if not holder.symbol.is_dataclass:
            return from_base
        fields = {parameter.name: parameter for parameter in from_base or ()}
        fields |= {parameter.name: parameter for parameter in holder.symbol.own_fields}
        for name, member in holder.symbol.members.items():
            if isinstance(member, Constant) and member.annotation and _is_no_argument(member):
                fields.pop(name, None)  # a base's field that this class takes out of the constructor
        return tuple(sorted(fields.values(), key=lambda parameter: parameter.kind is Kind.KEYWORD_ONLY))

    def accepts(self, holder: Found) -> dict[str, str]:
        """Keywords that only decorators take: a function's, or a class's and its bases'."""
        if isinstance(holder.symbol, Function):
            return dict(holder.symbol.accepts)
        if not isinstance(holder.symbol, Class):
            return {}
        found: dict[str, str] = {}
        for base in self.bases(holder):
            found |= self.accepts(base)
        return found | dict(holder.symbol.accepts)

    def _bound(self, parts: Sequence[str]) -> bool:
        holder = self.modules.get(".".join([PACKAGE, *parts[:-1]]))
        symbol = holder.symbols.get(parts[-1]) if holder else None
        return symbol is not None and not (isinstance(symbol, Alias) and (symbol.target or ":").endswith(":"))

    def _within(self, module: str, path: Sequence[str], seen: frozenset[str]) -> Found | None:
        """`path` looked up in a module; `seen` holds the aliases followed, since modules import each other."""
        held = self.modules.get(module)
        if held is None:
            return None
        if not path:
            return Found(module, "", held)
        symbol = held.symbols.get(path[0])
        if symbol is None:
            return self._within(f"{module}.{path[0]}", path[1:], seen)
        found = self._resolved(Found(module, path[0], symbol), seen)
        for index, name in enumerate(path[1:], start=1):
            if found is None:
                return None
            if isinstance(found.symbol, Module):
                return self._within(found.module, path[index:], seen)
            found = self.member(found, name)
        return found

    def _resolved(self, found: Found, seen: frozenset[str]) -> Found | None:
        """What an alias stands for; itself where only running FlashInfer would tell, None where that is not there."""
        if not isinstance(found.symbol, Alias) or found.symbol.target is None:
            return found
        target = found.symbol.target
        module, _, path = target.partition(":")
        if (module, path) == (found.module, found.path):  # `from . import jit` in the package that jit is in
            return self._within(f"{module}.{path}", [], seen)
        return None if target in seen else self._within(module, path.split(".") if path else [], seen | {target})

    def walk(self) -> Iterator[Found]:
        """Every definition, modules' own names before classes' members."""
        for name in self.modules:
            module = self.modules[name]
            yield Found(name, "", module)
            for symbol_name, symbol in module.symbols.items():
                yield from _walk(Found(name, symbol_name, symbol))


def _walk(found: Found) -> Iterator[Found]:
    yield found
    if isinstance(found.symbol, Class):
        for name, member in found.symbol.members.items():
            yield from _walk(Found(found.module, f"{found.path}.{name}", member))


def _trimmed(values: list[Any]) -> list[Any]:
    while values and not values[-1]:
        values.pop()
    return values


def _is_no_argument(member: Constant) -> bool:
    """Whether a dataclass's annotated member is none of its constructor's parameters."""
    return "ClassVar" in (member.annotation or "") or "init=False" in (member.value or "")


def _dotted_tail(text: str) -> str:
    return text.partition("(")[0].partition("[")[0].rpartition(".")[2]


def _listed(parameters: Sequence[Parameter]) -> Iterator[str]:
    """The parameters as a signature writes them, with its ``/`` and ``*``."""
    for index, parameter in enumerate(parameters):
        before = parameters[index - 1].kind if index else None
        if before is Kind.POSITIONAL_ONLY and parameter.kind is not Kind.POSITIONAL_ONLY:
            yield "/"
        if parameter.kind is Kind.KEYWORD_ONLY and before not in (Kind.KEYWORD_ONLY, Kind.VAR_POSITIONAL):
            yield "*"
        yield str(parameter)

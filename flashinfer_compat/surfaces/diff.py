"""Two surfaces compared: what changed, by its effect on a caller written for the older one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from packaging.requirements import InvalidRequirement, Requirement

from . import breakages as kinds
from .breakages import Breakage, Severity
from .derived import DerivedSurface
from .model import PACKAGE, Alias, Class, Constant, Found, Function, Kind, Module, Parameter, Source, Surface

#: Members that every class has or that the constructor's comparison covers.
_COVERED = frozenset({"__init__", "__slots__", "__doc__", "__module__", "__post_init__"})
#: A removed function is called renamed only if so many parameters agree: one or two agree by chance.
_TELLING_PARAMETERS = 3
_LITERAL = re.compile(r"\bLiteral\[([^\[\]]*)\]")


def diff(old: Surface, new: Surface, names: Iterable[str] | None = None) -> list[Breakage]:
    """The breakages from `old` to `new`, the worst first: of the whole surface, or of the dotted `names` alone.

    A name with a slash is a C++ ``file:function``. Where a release was concluded from its neighbours, each breakage
    says whether it is known; one that only the newer neighbour shows is listed as unknown.
    """
    found = _compared(old, new, names)
    if isinstance(new, DerivedSurface):
        settled = {replace(one, provenance="known") for one in found}
        found += [
            one
            for one in _compared(old, new.newer, names)
            if one not in settled and new.provenance(one.symbol) == "unknown"
        ]
    for derived in (old, new):
        if isinstance(derived, DerivedSurface):
            found = [replace(one, provenance=derived.provenance(one.symbol)) for one in found]
    return sorted(dict.fromkeys(found), key=lambda one: (-one.severity, one.symbol, one.kind))


def _compared(old: Surface, new: Surface, names: Iterable[str] | None) -> list[Breakage]:
    comparison = _Comparison(old, new)
    if names is None:
        return list(comparison.everything())
    return [one for name in dict.fromkeys(names) for one in comparison.named(name)]


class _Comparison:
    def __init__(self, old: Surface, new: Surface) -> None:
        self.old = old
        self.new = new

    # What is compared with what

    def everything(self) -> Iterator[Breakage]:
        for name in _union(self.old.modules, self.new.modules):
            if name not in self.old.modules:
                yield kinds.Added(symbol=name, what="module")
            elif name not in self.new.modules:
                yield kinds.Removed(symbol=name, what="module")
            else:
                yield from self.modules(self.old.modules[name], self.new.modules[name])
        for file in _union(self.old.sources, self.new.sources):
            yield from self.sources(file)
        yield from self.metadata()

    def modules(self, old: Module, new: Module) -> Iterator[Breakage]:
        if old == new:
            return
        for name in _union(old.symbols, new.symbols):
            dotted = f"{old.name}.{name}"
            before, after = old.symbols.get(name), new.symbols.get(name)
            if isinstance(before, Alias) and isinstance(after, Alias):
                continue  # what it stands for is compared where it is defined
            if before != after:
                old_found = None if before is None else self.old.find(dotted)
                new_found = None if after is None else self.new.find(dotted)
                yield from self.found(dotted, old_found, new_found, inherited=False)

    def named(self, name: str) -> Iterator[Breakage]:
        """A single name: what it stands for; of a class the public members, inherited ones included."""
        if "/" in name:
            file, _, function = name.partition(":")
            yield from (one for one in self.sources(file) if not function or one.symbol.endswith(f":{function}"))
            return
        dotted = name if name == PACKAGE or name.startswith(f"{PACKAGE}.") else f"{PACKAGE}.{name}"
        yield from self.found(dotted, self.old.find(dotted), self.new.find(dotted), inherited=True)

    def found(self, name: str, old: Found | None, new: Found | None, *, inherited: bool) -> Iterator[Breakage]:
        if old is None or new is None:
            if old is not None:
                yield self.gone(name, old)
            elif new is not None:
                yield kinds.Added(symbol=name, what=_what(new))
            return
        if old.dotted != new.dotted and not (name.startswith(old.dotted) and name.startswith(new.dotted)):
            yield kinds.DefinedElsewhere(symbol=name, old=old.dotted, new=new.dotted)
        if _what(old) != _what(new):
            yield kinds.WhatChanged(symbol=name, old=_what(old), new=_what(new))
        elif isinstance(old.symbol, Function) and isinstance(new.symbol, Function):
            yield from self.functions(name, old, new)
        elif isinstance(old.symbol, Class):
            yield from self.classes(name, old, new, inherited=inherited)
        elif isinstance(old.symbol, Constant) and isinstance(new.symbol, Constant):
            if old.symbol.value != new.symbol.value:
                yield kinds.ValueChanged(symbol=name, old=old.symbol.value, new=new.symbol.value)
            if old.symbol.annotation != new.symbol.annotation:
                yield kinds.AnnotationChanged(
                    symbol=name, parameter="", old=old.symbol.annotation, new=new.symbol.annotation
                )
        elif isinstance(old.symbol, Module) and isinstance(new.symbol, Module) and inherited:
            yield from self.modules(old.symbol, new.symbol)

    def gone(self, name: str, old: Found) -> Breakage:
        elsewhere = self.new.find(old.dotted) if old.dotted != name else None
        if elsewhere is None and isinstance(old.symbol, (Class, Function)) and "." not in old.path:
            candidates = [found for found in self.definitions.get(old.path, ()) if self.old.find(found.dotted) is None]
            elsewhere = candidates[0] if len(candidates) == 1 and _what(candidates[0]) == _what(old) else None
        if elsewhere is not None:
            return kinds.Moved(symbol=name, to=elsewhere.dotted)
        renamed = self.renamed(old)
        if renamed:
            return kinds.Renamed(symbol=name, to=renamed)
        return kinds.Removed(symbol=name, what=_what(old))

    def renamed(self, old: Found) -> str | None:
        """The one function new in the same module or class with the same telling signature."""
        holder, _, name = old.dotted.rpartition(".")
        beside = self.new.find(holder)
        if not isinstance(old.symbol, Function) or len(old.symbol.parameters) < _TELLING_PARAMETERS or beside is None:
            return None
        held = beside.symbol.members if isinstance(beside.symbol, Class) else getattr(beside.symbol, "symbols", {})
        candidates = [
            other
            for other, symbol in held.items()
            if isinstance(symbol, Function)
            and symbol.parameters == old.symbol.parameters
            and self.old.find(f"{holder}.{other}") is None
        ]
        return candidates[0] if len(candidates) == 1 and candidates[0] != name else None

    @cached_property
    def definitions(self) -> dict[str, list[Found]]:
        """The new release's functions and classes by their own name."""
        found: dict[str, list[Found]] = {}
        for module in self.new.modules.values():
            for name, symbol in module.symbols.items():
                if isinstance(symbol, (Class, Function)):
                    found.setdefault(name, []).append(Found(module.name, name, symbol))
        return found

    # Functions and classes

    def functions(self, name: str, old: Found, new: Found) -> Iterator[Breakage]:
        if not (isinstance(old.symbol, Function) and isinstance(new.symbol, Function)):
            return
        before, after = old.symbol, new.symbol
        if before == after:
            return
        yield from compared_parameters(
            name,
            _called(before, method="." in old.path),
            _called(after, method="." in new.path),
            before.accepts,
            after.accepts,
        )
        if before.returns != after.returns:
            yield kinds.AnnotationChanged(symbol=name, parameter="return", old=before.returns, new=after.returns)

    def classes(self, name: str, old: Found, new: Found, *, inherited: bool) -> Iterator[Breakage]:
        if not (isinstance(old.symbol, Class) and isinstance(new.symbol, Class)):
            return
        yield from compared_parameters(
            f"{name}.__init__",
            self.old.constructor(old) or (),
            self.new.constructor(new) or (),
            self.old.accepts(old),
            self.new.accepts(new),
        )
        for base in old.symbol.bases:
            if _tail(base) not in {_tail(other) for other in new.symbol.bases}:
                yield kinds.BaseRemoved(symbol=name, base=base)
        before, set_before = self.old.members(old), self.old.attributes(old)
        after, set_after = self.new.members(new), self.new.attributes(new)
        for member in _union(before if inherited else old.symbol.members, after if inherited else new.symbol.members):
            one, other = before.get(member), after.get(member)
            if member in _COVERED or (one and other and one.symbol == other.symbol):
                continue
            if inherited and member.startswith("_") and not member.startswith("__"):
                continue
            if (one is None and member in set_before) or (other is None and member in set_after):
                continue  # every object has it, before and after
            if _is_field(old, one) and (other is None or _is_field(new, other)):
                continue  # the constructor's comparison tells
            if one is None and _is_field(new, other):
                continue
            for breakage in self.found(f"{name}.{member}", one, other, inherited=inherited):
                # An inherited member defined in another base is no news for a caller.
                if not isinstance(breakage, kinds.DefinedElsewhere):
                    yield breakage

        yield from self.attributes(name, old, new, inherited=inherited)

    def attributes(self, name: str, old: Found, new: Found, *, inherited: bool) -> Iterator[Breakage]:
        """What ``__init__`` sets; an attribute that became a member, or was one, is still there."""
        before, after = self.old.attributes(old), self.new.attributes(new)
        own = before if inherited else getattr(old.symbol, "attributes", ())
        new_own = after if inherited else getattr(new.symbol, "attributes", ())
        for attribute in _union(own, new_own):
            if inherited and attribute.startswith("_"):
                continue
            if attribute not in after and self.new.member(new, attribute) is None:
                yield kinds.Removed(symbol=f"{name}.{attribute}", what="attribute")
            elif attribute not in before and self.old.member(old, attribute) is None:
                yield kinds.Added(symbol=f"{name}.{attribute}", what="attribute")

    # C++ and metadata

    def sources(self, file: str) -> Iterator[Breakage]:
        old, new = self.old.sources.get(file) or Source(file), self.new.sources.get(file) or Source(file)
        for name in _union(old.exports, new.exports):
            symbol = f"{file}:{name}"
            if name not in new.exports:
                yield kinds.Removed(symbol=symbol, what="JIT function")
            elif name not in old.exports:
                yield kinds.Added(symbol=symbol, what="JIT function")
            else:
                before, after = old.exports[name], new.exports[name]
                if before is None or after is None or before == after:
                    continue
                if len(before) != len(after):
                    yield kinds.ArityChanged(symbol=symbol, old=len(before), new=len(after))
                else:
                    yield kinds.ArgumentsChanged(symbol=symbol, old=before, new=after)
        for name in _union(old.templates, new.templates):
            symbol = f"{file}:{name}"
            if name not in new.templates:
                yield kinds.Removed(symbol=symbol, what="function template")
            elif name not in old.templates:
                yield kinds.Added(symbol=symbol, what="function template")
            elif old.templates[name] != new.templates[name]:
                lost = [str(one) for one in old.templates[name] if one not in new.templates[name]]
                gained = [str(one) for one in new.templates[name] if one not in old.templates[name]]
                if lost:
                    yield kinds.TemplateChanged(symbol=symbol, old="; ".join(lost), new="; ".join(gained) or "none")
                else:
                    yield kinds.Added(symbol=symbol, what="overload")

    def metadata(self) -> Iterator[Breakage]:
        old, new = self.old.metadata, self.new.metadata
        if old.requires_python != new.requires_python:
            yield kinds.RequirementChanged(
                symbol="Requires-Python", old=old.requires_python or "", new=new.requires_python or ""
            )
        before, after = _requirements(old.requires_dist), _requirements(new.requires_dist)
        for name in _union(before, after):
            if name not in after:
                yield kinds.RequirementDropped(symbol=name, version=before[name])
            elif name not in before:
                yield kinds.RequirementAdded(symbol=name, version=after[name])
            elif before[name] != after[name]:
                raised = _floor(after[name]) and _floor(before[name]) != _floor(after[name])
                kind = kinds.FloorRaised if raised else kinds.RequirementChanged
                yield kind(symbol=name, old=before[name], new=after[name])


def compared_parameters(
    symbol: str,
    old: Sequence[Parameter],
    new: Sequence[Parameter],
    accepted_before: Mapping[str, str] | None = None,
    accepted_after: Mapping[str, str] | None = None,
) -> Iterator[Breakage]:
    """The breakages from one list of parameters (without ``self``) to another."""
    before = {parameter.name: parameter for parameter in old}
    after = {parameter.name: parameter for parameter in new}
    accepted_before, accepted_after = accepted_before or {}, accepted_after or {}
    renamed = _renamed(old, new, accepted_after)
    for name, to in renamed.items():
        yield kinds.ParameterRenamed(symbol=symbol, parameter=name, to=to, alias=accepted_after.get(name) == to)
    absorbs = {parameter.kind for parameter in new} >= {Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD}
    for name, parameter in before.items():
        if name in renamed:
            continue
        if name in after:
            yield from _changed(symbol, parameter, after[name])
        elif accepted_after.get(name) in after:
            yield kinds.ParameterRenamed(symbol=symbol, parameter=name, to=accepted_after[name], alias=True)
        elif absorbs and parameter.kind is not Kind.POSITIONAL_ONLY:
            yield kinds.ParameterAbsorbed(symbol=symbol, parameter=name)
        else:
            yield kinds.ParameterRemoved(symbol=symbol, parameter=name)
    for name in accepted_before:
        if name not in accepted_after and name not in after:
            yield kinds.KeywordsNoLongerTaken(symbol=symbol, parameter=name)
    yield from _reordered(symbol, old, new, renamed)
    known = {*before, *renamed.values()}
    for position, parameter in enumerate(new):
        if parameter.name in known:
            continue
        later = [other.name for other in new[position:] if other.positional and other.name in known]
        if parameter.required:
            yield kinds.ParameterAddedRequired(symbol=symbol, parameter=parameter.name)
        elif parameter.positional and later:
            yield kinds.ParameterInserted(symbol=symbol, parameter=parameter.name, before=later[0])
        else:
            yield kinds.ParameterAdded(symbol=symbol, parameter=parameter.name, default=parameter.default)


def _changed(symbol: str, old: Parameter, new: Parameter) -> Iterator[Breakage]:
    """A parameter that both have."""
    if old.kind != new.kind:
        became = {
            Kind.KEYWORD_ONLY: kinds.BecameKeywordOnly,
            Kind.POSITIONAL_ONLY: kinds.BecamePositionalOnly,
        }.get(new.kind, kinds.BecamePositional)
        yield became(symbol=symbol, parameter=old.name)
    if old.default != new.default:
        if old.default is None:
            yield kinds.BecameOptional(symbol=symbol, parameter=old.name, default=new.default or "")
        elif new.default is None:
            yield kinds.BecameRequired(symbol=symbol, parameter=old.name)
        else:
            yield kinds.DefaultChanged(symbol=symbol, parameter=old.name, old=old.default, new=new.default)
    if old.annotation != new.annotation:
        yield kinds.AnnotationChanged(symbol=symbol, parameter=old.name, old=old.annotation, new=new.annotation)
        before, after = _literals(old.annotation), _literals(new.annotation)
        if before and after:
            gained = tuple(value for value in after if value not in before)
            lost = tuple(value for value in before if value not in after)
            if gained:
                yield kinds.ValuesAdded(symbol=symbol, parameter=old.name, values=gained)
            if lost:
                yield kinds.ValuesRemoved(symbol=symbol, parameter=old.name, values=lost)


def _literals(annotation: str | None) -> list[str]:
    """The values that an annotation lists."""
    return [value.strip() for listed in _LITERAL.findall(annotation or "") for value in listed.split(",")]


def _renamed(old: Sequence[Parameter], new: Sequence[Parameter], accepted: Mapping[str, str]) -> dict[str, str]:
    """Old parameter -> the new one in its place: the same but for the name, or one whose alias the old name is."""
    names_before, names_after = {one.name for one in old}, {one.name for one in new}
    lost = [(index, one) for index, one in enumerate(old) if one.name not in names_after]
    gained = [(index, one) for index, one in enumerate(new) if one.name not in names_before]
    renamed: dict[str, str] = {}
    for index, one in lost:
        for other_index, other in gained:
            in_place = one.kind is Kind.KEYWORD_ONLY or index == other_index
            alike = replace(one, name=other.name) == other and in_place
            if (alike or accepted.get(one.name) == other.name) and other.name not in renamed.values():
                renamed[one.name] = other.name
                break
    return renamed


def _reordered(
    symbol: str, old: Sequence[Parameter], new: Sequence[Parameter], renamed: Mapping[str, str]
) -> Iterator[Breakage]:
    """Parameters whose order among those that both have positionally is another."""
    names_before = [renamed.get(one.name, one.name) for one in old if one.positional]
    names_after = [one.name for one in new if one.positional]
    common_before = [name for name in names_before if name in names_after]
    common_after = [name for name in names_after if name in names_before]
    for name in common_before:
        if common_before.index(name) != common_after.index(name):
            yield kinds.ParameterReordered(
                symbol=symbol, parameter=name, old=names_before.index(name), new=names_after.index(name)
            )


def _called(function: Function, *, method: bool) -> tuple[Parameter, ...]:
    """The parameters as a caller passes them: a method's first is bound."""
    bound = method and "staticmethod" not in function.decorators and function.parameters
    return function.parameters[1:] if bound else function.parameters


def _what(found: Found) -> str:
    symbol = found.symbol
    if isinstance(symbol, Function):
        if symbol.is_property:
            return "property"
        marks = {"staticmethod": "static method", "classmethod": "class method"}
        return next((what for mark, what in marks.items() if mark in symbol.decorators), "function")
    return {Class: "class", Constant: "value", Alias: "re-export", Module: "module"}[type(symbol)]


def _is_field(holder: Found, found: Found | None) -> bool:
    return (
        isinstance(holder.symbol, Class)
        and holder.symbol.is_dataclass
        and found is not None
        and isinstance(found.symbol, Constant)
        and found.symbol.annotation is not None
    )


def _union(*mappings: Iterable[str]) -> list[str]:
    """The names of all, in the order in which they come."""
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _tail(text: str) -> str:
    return text.partition("[")[0].rpartition(".")[2]


def _requirements(lines: Iterable[str]) -> dict[str, str]:
    """Distribution, with the extra it is required for -> the version it is required in."""
    found: dict[str, str] = {}
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        marker = f" ; {requirement.marker}" if requirement.marker else ""
        found[f"{requirement.name}{extras}{marker}"] = str(requirement.specifier)
    return found


def _floor(specifier: str) -> str | None:
    return next((part for part in specifier.split(",") if part.startswith((">=", "==", ">", "~="))), None)


def worst(found: Iterable[Breakage]) -> Severity:
    """The worst severity, `Severity.NONE` where there is nothing."""
    return max((one.severity for one in found), default=Severity.NONE)

"""A wheel's surface, read from the archive: no file is unpacked, nothing of it is imported or run."""

from __future__ import annotations

import ast
import gc
import hashlib
import os
import posixpath
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

from ..errors import CompatError
from .bodies import without_bodies
from .cpp_source import EXPORT_MARK, included, parameters_of, read_exports, read_templates, without_comments
from .model import PACKAGE, Alias, Class, Decoded, Function, Metadata, Module, Source, Surface, Symbol, json_line
from .python_source import keywords_taken, parsed, read_module

#: Third-party source that the wheel carries, and Python files that FlashInfer's package cannot import.
_NOT_A_MODULE = f"{PACKAGE}/data/"
_HEADERS = f"{PACKAGE}/data/include/"
_VENDORED = tuple(f"{PACKAGE}/data/{name}/" for name in ("cutlass", "cccl", "spdlog"))
_CPP_SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc", ".jinja")
#: Text that a file has in which a decorator takes keywords away (see `keywords_taken`).
_POPS_KEYWORDS = b"kwargs.pop("


class UnreadableWheel(CompatError, ValueError):
    """No wheel of FlashInfer: another file, or none."""


def record(wheel: Path, *, processes: int | None = None) -> Surface:
    """The surface of the FlashInfer wheel at `wheel`. Raises `UnreadableWheel` for anything else."""
    try:
        with ZipFile(wheel) as archive:
            entries = archive.infolist()
            metadata = _metadata(archive, wheel)
    except (OSError, BadZipFile, ValueError) as error:
        raise UnreadableWheel(f"{wheel} is no FlashInfer wheel: {error}") from error
    files = [entry for entry in entries if _is_module(entry) or _is_cpp(entry)]
    count = processes or min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, 8)
    if count == 1:
        parts = [_read(wheel, [entry.filename for entry in files])]
    else:
        with ProcessPoolExecutor(count) as pool:
            parts = list(pool.map(_read, [wheel] * count * 4, _shared_out(files, count * 4)))
    return Surface(metadata, _linked(parts))


def downloaded(version: str, directory: Path) -> Path:
    """FlashInfer's wheel of `version`, fetched with pip into `directory`. Raises `UnreadableWheel` if pip has none."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    try:
        subprocess.run([*command, "--dest", str(directory), f"flashinfer-python=={version}"], check=True)
    except subprocess.CalledProcessError as error:
        raise UnreadableWheel(f"pip fetched no wheel of flashinfer-python=={version}") from error
    return next(directory.glob("flashinfer_python-*.whl"))


def record_release(version_or_wheel: str) -> Surface:
    """`record` for a path, or for a version that is fetched first and thrown away after."""
    path = Path(version_or_wheel)
    if path.suffix == ".whl":
        return record(path)
    with tempfile.TemporaryDirectory() as directory:
        return record(downloaded(version_or_wheel, Path(directory)))


@dataclass
class _Part:
    """What one process read: each module and file as its JSON line, which crosses to the parent as plain text."""

    lines: dict[str, str] = field(default_factory=dict)
    #: Modules with a star import or a lazy name, which only the other modules settle.
    open_ended: set[str] = field(default_factory=set)
    #: decorator -> the keywords it takes
    keywords: dict[str, dict[str, str]] = field(default_factory=dict)


def _read(wheel: Path, names: Iterable[str]) -> _Part:
    part = _Part()
    collecting = gc.isenabled()
    gc.disable()  # the trees have no cycles, and looking for some takes a third of the time
    try:
        with ZipFile(wheel) as archive:
            headers = _Headers(archive)
            for name in names:
                source = archive.read(name)
                if name.endswith(".py"):
                    _read_python(name, source, part)
                elif EXPORT_MARK in source or _has_templates(name):
                    read = _read_cpp(name, without_comments(source.decode("utf-8", "replace")), headers)
                    if read.exports or read.templates:
                        part.lines[read.file] = json_line(read.encoded())
    finally:
        if collecting:
            gc.enable()
    return part


def _read_python(path: str, source: bytes, part: _Part) -> None:
    name, package = _module_name(path)
    pops_keywords = _POPS_KEYWORDS in source
    try:
        tree, source = _parsed(source, whole=pops_keywords)
    except SyntaxError:  # newer syntax than this Python's: the module is there, what it binds is not known
        part.lines[name] = json_line(Module(name, package=package, dynamic=True).encoded())
        return
    module = read_module(name, tree, source, package=package)
    if any(bound[0] == "*" or _is_lazy(symbol) for bound, symbol in module.symbols.items()):
        part.open_ended.add(name)
    part.lines[name] = json_line(module.encoded())
    if pops_keywords:
        part.keywords |= keywords_taken(tree)


def _parsed(source: bytes, *, whole: bool) -> tuple[ast.Module, bytes]:
    """The tree, and the source that it is of: without bodies where that parses."""
    if not whole:
        shortened = without_bodies(source)
        try:
            return parsed(shortened), shortened
        except SyntaxError:
            pass
    return parsed(source), source


def _read_cpp(name: str, source: str, headers: _Headers) -> Source:
    file = name.removeprefix(f"{PACKAGE}/")
    exports = {
        exported: headers.parameters_of(found, included(source), name) if isinstance(found, str) else found
        for exported, found in read_exports(source).items()
    }
    return Source(file, exports, read_templates(source) if _has_templates(name) else {})


class _Headers:
    """The files that an exporting file includes: what it exports may be declared there."""

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive
        self._names = set(archive.namelist())
        self._texts: dict[str, str] = {}

    def parameters_of(self, function: str, includes: Iterable[str], name: str) -> tuple[str, ...] | None:
        for include in includes:
            for directory in (f"{name.rpartition('/')[0]}/", f"{PACKAGE}/data/csrc/", _HEADERS):
                path = posixpath.normpath(directory + include)
                if path in self._names:
                    found = parameters_of(self._text(path), function)
                    if found is not None:
                        return found
                    break
        return None

    def _text(self, path: str) -> str:
        if path not in self._texts:
            self._texts[path] = without_comments(self._archive.read(path).decode("utf-8", "replace"))
        return self._texts[path]


def _linked(parts: Iterable[_Part]) -> dict[str, str]:
    """All lines in order, with what needs more than one module settled: stars, lazy names, decorators' keywords."""
    lines: dict[str, str] = {}
    open_ended: set[str] = set()
    keywords: dict[str, dict[str, str]] = {}
    for part in parts:
        lines |= part.lines
        open_ended |= part.open_ended
        keywords |= part.keywords
    lines = {key: lines[key] for key in sorted(lines)}
    modules = Decoded(lines, [key for key in lines if "/" not in key], Module.decoded)
    for name in modules:
        if name in open_ended or any(decorator in lines[name] for decorator in keywords):
            symbols: dict[str, Symbol] = {}
            for bound, symbol in modules[name].symbols.items():
                if bound.startswith("*"):
                    symbols |= _starred(modules, bound[1:], frozenset({name}))
                else:
                    symbols[bound] = _with_keywords(_placed(symbol, f"{name}.{bound}", modules), keywords)
            lines[name] = json_line(replace(modules[name], symbols=symbols).encoded())
    return lines


def _starred(modules: Mapping[str, Module], name: str, seen: frozenset[str]) -> dict[str, Symbol]:
    """What ``from name import *`` binds."""
    module = modules.get(name)
    if module is None or name in seen:
        return {}
    names: dict[str, None] = {}
    for bound in module.symbols:
        names |= dict.fromkeys(_starred(modules, bound[1:], seen | {name}) if bound[0] == "*" else [bound])
    chosen = [bound for bound in names if not bound.startswith("_")] if module.exports is None else module.exports
    return {bound: Alias(f"{name}:{bound}") for bound in chosen}


def _placed(symbol: Symbol, dotted: str, modules: Mapping[str, Module]) -> Symbol:
    """A lazy name whose place was read wrongly keeps none (tables hold more than places), unless it is a submodule."""
    if not (isinstance(symbol, Alias) and symbol.lazy):
        return symbol
    module, _, attribute = (symbol.target or ":").partition(":")
    if module in modules and (attribute in modules[module].symbols or f"{module}.{attribute}" in modules):
        return symbol
    return replace(symbol, target=f"{dotted}:" if dotted in modules else None)


def _with_keywords(symbol: Symbol, keywords: Mapping[str, Mapping[str, str]]) -> Symbol:
    """`symbol` with the keywords that its decorators take beside its signature's."""
    if isinstance(symbol, Class):
        members = {name: _with_keywords(member, keywords) for name, member in symbol.members.items()}
        symbol = replace(symbol, members=members)
    if isinstance(symbol, (Class, Function)):
        taken = dict(symbol.accepts)
        for decorator in symbol.decorators:
            taken |= keywords.get(decorator.partition("(")[0].rpartition(".")[2], {})
        return replace(symbol, accepts=taken)
    return symbol


def _is_lazy(symbol: Symbol) -> bool:
    return isinstance(symbol, Alias) and symbol.lazy


def _metadata(archive: ZipFile, wheel: Path) -> Metadata:
    name = next((entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA")), None)
    if name is None or f"{PACKAGE}/__init__.py" not in archive.namelist():
        raise ValueError(f"it holds no {PACKAGE} package")
    headers = HeaderParser().parsestr(archive.read(name).decode())
    digest = hashlib.sha256()
    with wheel.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return Metadata(
        headers["Version"],
        headers["Requires-Python"],
        tuple(headers.get_all("Requires-Dist") or ()),
        digest.hexdigest(),
    )


def _shared_out(entries: list[ZipInfo], count: int) -> list[list[str]]:
    """`entries` in `count` shares of about equal work: Python costs ten times what C++ does."""
    shares: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    cost = {entry.filename: entry.file_size * (1.0 if _is_module(entry) else 0.05) for entry in entries}
    for name in sorted(cost, key=lambda name: (-cost[name], name)):
        least = loads.index(min(loads))
        shares[least].append(name)
        loads[least] += cost[name]
    return shares


def _is_module(entry: ZipInfo) -> bool:
    name = entry.filename
    if not name.startswith(f"{PACKAGE}/") or not name.endswith(".py") or name.startswith(_NOT_A_MODULE):
        return False
    return all(part.isidentifier() for part in _module_name(name)[0].split("."))


def _is_cpp(entry: ZipInfo) -> bool:
    name = entry.filename
    return name.startswith(f"{PACKAGE}/") and name.endswith(_CPP_SUFFIXES) and not name.startswith(_VENDORED)


def _has_templates(name: str) -> bool:
    return name.startswith(_HEADERS) and name.endswith(".cuh")


def _module_name(path: str) -> tuple[str, bool]:
    parts = path.removesuffix(".py").split("/")
    package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if package else parts), package

"""Which names count: FlashInfer's public ones, and those that a caller's source uses."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .model import PACKAGE, Alias, Class, Found, Function, Module, Surface

#: Packages whose names are not FlashInfer's promise to callers: kernels' sources, trials, build and test machinery.
NOT_PUBLIC = frozenset({"aot", "artifacts", "collect_env", "data", "experimental", "jit", "trace", "trace_apply"})

_INCLUDE = re.compile(r'#\s*include\s*[<"](flashinfer/[\w./]+)[>"]')
_IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*\b")


def public_names(surface: Surface) -> list[str]:
    """The dotted public names of a release.

    Public is what a caller finds without an underscore on the way: what the package and its subpackages list or import
    in their ``__init__``, what a module beside them lists in ``__all__`` or, if it has something marked
    ``@flashinfer_api``, defines, and what is so marked anywhere.
    """
    found: dict[str, None] = {}
    for name in surface.modules:
        parts = name.split(".")[1:]
        if any(part.startswith("_") or part in NOT_PUBLIC or part.endswith("_backend") for part in parts):
            continue
        module = surface.modules[name]
        for bound, symbol in module.symbols.items():
            if bound.startswith("_"):
                continue
            if _is_api(symbol) or (len(parts) <= 1 and _is_exported(module, bound)):
                found[f"{name}.{bound}"] = None
    return [name for name in found if name not in surface.modules or _symbol(surface.find(name))]


def _is_api(symbol: object) -> bool:
    if isinstance(symbol, Class):
        return any(_is_api(member) for member in symbol.members.values())
    return isinstance(symbol, Function) and symbol.is_api


def _is_exported(module: Module, name: str) -> bool:
    if module.exports is not None:
        return name in module.exports
    symbol = module.symbols[name]
    if module.package:
        return isinstance(symbol, (Alias, Class, Function))
    # A plain module's imports are its own business, and so is a kernel's host code that no API is made of.
    return isinstance(symbol, (Class, Function)) and any(map(_is_api, module.symbols.values()))


def used_names(paths: Iterable[Path]) -> list[str]:
    """The dotted names of FlashInfer's that Python and CUDA sources below `paths` use, sorted.

    Followed are imports, attributes of what was imported, and strings that name a module or, behind it, a name of it
    (lazy importers and ``importlib``). C++ templates are given as ``file:function``: those that a file which includes
    their header mentions.
    """
    found: set[str] = set()
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            source = file.read_bytes()
            if PACKAGE.encode() in source:
                found |= set(_used_in(source))
    return sorted(found)


def used_templates(paths: Iterable[Path], surface: Surface) -> list[str]:
    """The function templates of a release that C++ sources below `paths` mention, as ``file:function``."""
    found: set[str] = set()
    for path in paths:
        for file in sorted(path.rglob("*.cu*")) + sorted(path.rglob("*.h*")):
            if not file.is_file():
                continue
            source = file.read_text(encoding="utf-8", errors="replace")
            headers = {f"data/include/{header}" for header in _INCLUDE.findall(source)} & set(surface.sources)
            words = set(_IDENTIFIER.findall(source)) if headers else set()
            found |= {
                f"{header}:{name}" for header in headers for name in surface.sources[header].templates if name in words
            }
    return sorted(found)


def _used_in(source: bytes) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except SyntaxError:
            return
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and is_flashinfer(node.module or ""):
            for name in node.names:
                dotted = f"{node.module}.{name.name}" if name.name != "*" else str(node.module)
                bound[name.asname or name.name] = dotted
                yield dotted
        elif isinstance(node, ast.Import):
            for name in node.names:
                if is_flashinfer(name.name):
                    bound[name.asname or PACKAGE] = name.name if name.asname else PACKAGE
                    yield name.name
        elif isinstance(node, ast.Call):
            yield from _named_in_call(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield from _attribute(node, bound)


def _named_in_call(node: ast.Call) -> Iterator[str]:
    """Strings in ``lazy("flashinfer.module", "name")`` and ``import_module("flashinfer.module")``."""
    texts = [argument.value if isinstance(argument, ast.Constant) else None for argument in node.args]
    for index, module in enumerate(texts):
        if isinstance(module, str) and is_flashinfer(module) and all(map(str.isidentifier, module.split("."))):
            yield module
            following = texts[index + 1] if index + 1 < len(texts) else None
            if isinstance(following, str) and following.isidentifier():
                yield f"{module}.{following}"


def _attribute(node: ast.Attribute, bound: Mapping[str, str]) -> Iterator[str]:
    """The dotted name behind ``imported.a.b``."""
    parts = [node.attr]
    inner: ast.expr = node.value
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name) and inner.id in bound:
        yield ".".join([bound[inner.id], *reversed(parts)])


def is_flashinfer(module: str) -> bool:
    """Whether a dotted name is FlashInfer's."""
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def distinct(names: Iterable[str], old: Surface, new: Surface) -> list[str]:
    """`names` without those that in both releases stand for the same as an earlier one."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for name in names:
        before, after = old.find(name), new.find(name)
        if before and after:
            if (before.dotted, after.dotted) in seen:
                continue
            seen.add((before.dotted, after.dotted))
        kept.append(name)
    return kept


def known_in(names: Iterable[str], surfaces: Iterable[Surface]) -> list[str]:
    """Those of `names` that one of the releases has, cut to the symbol: of ``f.__doc__`` remains ``f``."""
    surfaces = list(surfaces)
    found: dict[str, None] = {}
    for name in names:
        parts = name.split(".")
        for end in range(len(parts), 1, -1):
            candidate = ".".join(parts[:end])
            if any(_symbol(surface.find(candidate)) for surface in surfaces):
                found[candidate] = None
                break
    return list(found)


def _symbol(found: Found | None) -> bool:
    return found is not None and not isinstance(found.symbol, Module)

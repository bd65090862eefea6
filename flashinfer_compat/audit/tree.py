"""The audited files that have to do with FlashInfer, as modules that import each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from . import syntax
from .concern import Concern
from .files import Listed, Skipped, parse, read
from .releases import Releases

#: A file without any of these can get at FlashInfer only through another audited file.
_DIRECT = re.compile(
    rb"""(?:import|from)\s+flashinfer\b|["']flashinfer\.|[(\[,=]\s*["']flashinfer["']\s*[,)]"""
    rb"""|["']flashinfer[-_]python["']"""
)
_IMPORTS = re.compile(rb"\n[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import\b|import[ \t]+([\w., \t]+))")


@dataclass(eq=False)
class SourceFile:
    """A parsed Python file; `module` is its dotted name from the audited folder on."""

    path: str
    module: str
    is_package: bool
    syntax: syntax.Syntax
    #: The names that can have to do with FlashInfer.
    concern: Concern


class SourceTree:
    """The Python files that use FlashInfer, by themselves or through each other."""

    def __init__(self, files: Iterable[Listed], releases: Releases, skipped: list[Skipped]) -> None:
        self.releases = releases
        self.skipped = skipped
        self.files: dict[str, SourceFile] = {}  # by dotted name
        self.count = 0
        self._indexed = 0
        self._tail_index: dict[str, SourceFile] = {}
        self._others: dict[str, tuple[Listed, bool]] = {}  # not parsed: dotted name -> file
        self._importers: dict[str, list[str]] = {}  # imported module -> the unparsed modules that import it
        for found in files:
            self._python(found)

    def _python(self, found: Listed) -> None:
        self.count += 1
        source = read(found.path, self.skipped)
        if source is None:
            return
        module, is_package = _module(found.name)
        if _is_direct(source):
            self._load(found, module, is_package, source)
            return
        self._others[module] = found, is_package
        for one, several in set(_IMPORTS.findall(b"\n" + source)):
            for name in several.split(b",") if several else (one,):
                target = name.strip().partition(b" ")[0].decode("utf-8", "replace")
                if target.startswith("."):
                    target = absolute(target, module, is_package)
                self._importers.setdefault(target, []).append(module)

    def _load(self, found: Listed, module: str, is_package: bool, source: bytes) -> SourceFile | None:
        tree = parse(found.path, source, self.skipped)
        if tree is None:
            return None
        try:
            read_syntax = syntax.read(tree)
        except RecursionError:
            self.skipped.append(Skipped(found.path, "nested too deeply"))
            return None
        file = SourceFile(
            found.path, module, is_package, read_syntax, Concern(read_syntax, source, self.releases.makes)
        )
        self.files[module] = file
        return file

    def methods(self) -> dict[str, list[tuple[SourceFile, ast.FunctionDef | ast.AsyncFunctionDef]]]:
        """The methods of the parsed files' classes by name."""
        if self._methods is None or self._methods[0] != len(self.files):
            found: dict[str, list[tuple[SourceFile, ast.FunctionDef | ast.AsyncFunctionDef]]] = {}
            for file in self.files.values():
                for scope in file.syntax.scopes.values():
                    if isinstance(scope.node, ast.ClassDef):
                        for node in scope.node.body:
                            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                                found.setdefault(node.name, []).append((file, node))
            self._methods = len(self.files), found
        return self._methods[1]

    _methods: tuple[int, dict[str, list[tuple[SourceFile, ast.FunctionDef | ast.AsyncFunctionDef]]]] | None = None

    def spread(self) -> None:
        """Mark the names that have to do with FlashInfer, across the files' imports of each other."""
        changed = True
        while changed:
            changed = False
            # A method that says that it returns something of FlashInfer's, and is the only one of its name,
            # concerns whoever calls it.
            methods = frozenset(
                name
                for name, found in self.methods().items()
                if len(found) == 1 and any(_says(node.returns, file) for file, node in found)
            )
            for file in self.files.values():
                file.concern.mark_methods(methods)

                def concerned(module: str, name: str, file: SourceFile = file) -> bool:
                    target = absolute(module, file.module, file.is_package)
                    own = self.find(target)
                    if own is not None and (name in own.concern.names or name in ("", "*")):
                        return True
                    return bool(name) and self.find(f"{target}.{name}") is not None

                changed = file.concern.spread(concerned) or changed

    def find(self, module: str) -> SourceFile | None:
        """The parsed file of an absolute module name, which may begin above or below the audited folder's name."""
        if module in self.files:
            return self.files[module]
        return self._by_tail().get(module)

    def importers(self, file: SourceFile, exported: set[str]) -> Iterator[SourceFile]:
        """Files not parsed before that import one of `exported` from `file`, or `file` itself: now parsed."""
        modules = {file.module, *_tails(file.module)}
        packages = {name.rpartition(".")[0] for name in modules} - {""}
        tail = file.module.rpartition(".")[2]
        texts = [name.encode() for name in sorted(exported)]
        words = re.compile(rb"\b(?:%s)\b" % b"|".join(map(re.escape, texts)))
        for name in sorted(modules | packages):
            for module in self._importers.get(name, ()):
                other = self._others.get(module)
                source = read(other[0].path, self.skipped) if other is not None else None
                if other is None or source is None:
                    continue
                # `from package import module` is told from `from package import other` by the text.
                if (
                    (name in modules or tail.encode() in source)
                    and any(map(source.__contains__, texts))
                    and words.search(source)
                ):
                    del self._others[module]
                    loaded = self._load(other[0], module, other[1], source)
                    if loaded is not None:
                        yield loaded

    def _by_tail(self) -> dict[str, SourceFile]:
        if self._indexed != len(self.files):
            self._indexed = len(self.files)
            self._tail_index = {}
            for file in self.files.values():
                for tail in _tails(file.module):
                    self._tail_index.setdefault(tail, file)
        return self._tail_index


def _says(annotation: ast.expr | None, file: SourceFile) -> bool:
    """Whether an annotation, perhaps written as text, names something that concerns FlashInfer."""
    if isinstance(annotation, ast.Constant):
        return str(annotation.value).partition("[")[0] in file.concern.names
    return annotation is not None and annotation in file.concern


def _is_direct(source: bytes) -> bool:
    """Whether the text itself says that it uses FlashInfer; asked of its surroundings, which is quick."""
    at = source.find(b"flashinfer")
    while at >= 0:
        if _DIRECT.search(source, max(at - 100, 0), at + 100):
            return True
        at = source.find(b"flashinfer", at + 1)
    return False


def _tails(module: str) -> list[str]:
    """A module's names as seen from folders further in: an audited ``python/engine/x.py`` is ``engine.x``."""
    parts = module.split(".")
    return [".".join(parts[start:]) for start in range(1, len(parts) - 1)]


def absolute(module: str, importer: str, is_package: bool) -> str:
    """The absolute name of a module that `importer` imports."""
    level = len(module) - len(module.lstrip("."))
    if not level:
        return module
    parts = importer.split(".")
    base = parts[: len(parts) - level + (1 if is_package else 0)]
    return ".".join([*base, *filter(None, [module[level:]])])


def _module(name: str) -> tuple[str, bool]:
    stem = name.rpartition(".")[0].replace("/", ".")
    return (stem[: -len(".__init__")], True) if stem.endswith(".__init__") else (stem, False)


def calls_of(file: SourceFile) -> dict[str, list[ast.Call]]:
    """A file's calls by the last name of what they call."""
    found: dict[str, list[ast.Call]] = {}
    for node, _ in file.syntax.nodes:
        if isinstance(node, ast.Call):
            found.setdefault(syntax.tail(node.func), []).append(node)
    return found

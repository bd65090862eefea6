"""Which names of a file can have to do with FlashInfer at all: everything else need not be looked at."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ..surfaces.model import PACKAGE
from .releases import RAW_MODULES
from .syntax import Attempt, Binding, Branch, Scope, Syntax

#: Stands for FlashInfer itself where a text names one of its modules.
_TEXT = f'"{PACKAGE}"'


class Concern:
    """A file's names and the names that each depends on; scopes are not told apart, so that nothing is lost."""

    def __init__(self, syntax: Syntax) -> None:
        #: Every name and attribute in the file.
        self.words = frozenset(_identifiers(syntax.tree))
        self._identifiers: dict[ast.AST, frozenset[str]] = {}
        self._concerned: dict[ast.AST, bool] = {}
        self.depends: dict[str, set[str]] = {}
        #: Imports of other modules than FlashInfer's: bound name -> module and name.
        self.imports: list[tuple[str, str, str]] = []
        self.names: set[str] = {_TEXT, *RAW_MODULES}
        calls: dict[str, set[str]] = {}
        for node, _ in syntax.nodes:
            if isinstance(node, ast.Call):
                self._call(node, calls)
        for scope in syntax.scopes.values():
            for table in (scope.bindings, scope.attributes):
                for name, bindings in table.items():
                    for binding in bindings:
                        self._binding(name, binding, calls)
            self._returns(scope)

    def _call(self, node: ast.Call, calls: dict[str, set[str]]) -> None:
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        called = [_tail(node.func), *(_tail(one) for one in node.args[:1])]
        for name in filter(None, called):
            for argument in arguments:
                calls.setdefault(name, set()).update(self.identifiers(argument))

    def _binding(self, name: str, binding: Binding, calls: dict[str, set[str]]) -> None:
        depends = self.depends.setdefault(name, set())
        for guard in binding.where.guards:
            if isinstance(guard, Branch):
                depends |= self.identifiers(guard.test)
            elif isinstance(guard, Attempt):
                for statement in guard.statement.body:
                    depends |= self.identifiers(statement)
        node = binding.node
        if binding.kind in ("import", "from"):
            module = binding.module
            if module == PACKAGE or module.startswith(f"{PACKAGE}."):
                self.names.add(name)
            else:
                self.imports.append((name, module, str(binding.detail)))
        elif binding.kind == "parameter" and isinstance(node, ast.arg):
            if node.annotation is not None:
                depends |= self.identifiers(node.annotation)
            function = binding.where.scope.node
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                depends |= calls.get(function.name, set())
                if node.arg in ("self", "cls"):
                    depends |= _class_names(binding.where.scope)
        elif isinstance(node, ast.ClassDef):
            for base in node.bases:
                depends |= self.identifiers(base)
        else:
            depends |= self.identifiers(node)

    def _returns(self, scope: Scope) -> None:
        if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.depends.setdefault(scope.node.name, set()).update(self.identifiers(scope.node))

    def spread(self, concerned: Callable[[str, str], bool]) -> bool:
        """Mark what depends on FlashInfer, or on an import that is `concerned`; whether anything is new."""
        before = len(self.names)
        self._concerned.clear()
        self.names |= {name for name, module, detail in self.imports if concerned(module, detail)}
        pending = True
        while pending:
            pending = False
            for name, depends in self.depends.items():
                if name not in self.names and not depends.isdisjoint(self.names):
                    self.names.add(name)
                    pending = True
        return len(self.names) != before

    def identifiers(self, node: ast.AST) -> frozenset[str]:
        """The names and attributes in a node, and whether a text in it names FlashInfer."""
        if node not in self._identifiers:
            self._identifiers[node] = frozenset(_identifiers(node))
        return self._identifiers[node]

    def __contains__(self, node: ast.AST) -> bool:
        """Whether the node, or one in it, has a name that is marked."""
        known = self._concerned.get(node)
        if known is None:
            marked = any(name in self.names for name in _own_identifiers(node))
            known = marked or any(child in self for child in ast.iter_child_nodes(node))
            self._concerned[node] = known
        return known


def _identifiers(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        yield from _own_identifiers(inner)


def _own_identifiers(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and node.value.startswith(PACKAGE):
            yield _TEXT
            tail = node.value.rpartition(".")[2]
            if tail.isidentifier():
                yield tail
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]


def _class_names(scope: Scope) -> set[str]:
    holder = scope.parent
    if holder is None or not isinstance(holder.node, ast.ClassDef):
        return set()
    return {holder.node.name}


def _tail(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""

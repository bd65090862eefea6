"""Which names of a file can have to do with FlashInfer at all: everything else need not be looked at."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from itertools import accumulate

from ..surfaces.model import PACKAGE
from ..surfaces.names import is_flashinfer
from .releases import RAW_MODULES
from .syntax import Attempt, Binding, Branch, Scope, Syntax, tail

#: Stands for FlashInfer itself where a text names one of its modules.
_TEXT = f'"{PACKAGE}"'


class Concern:
    """A file's names and the names that each depends on; scopes are not told apart, so that nothing is lost."""

    def __init__(self, syntax: Syntax) -> None:
        #: Every name and attribute of the file in the order of its nodes, and each node's part of that list.
        self._words: list[str] = []
        self._parts: dict[ast.AST, tuple[int, int]] = {}
        self._list(syntax.tree)
        self.words = frozenset(self._words)
        self._marked: list[int] = []
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
            self._returns(scope, syntax)

    def _list(self, node: ast.AST) -> None:
        start = len(self._words)
        self._words.extend(_identifiers(node))
        for child in ast.iter_child_nodes(node):
            self._list(child)
        self._parts[node] = start, len(self._words)

    def _call(self, node: ast.Call, calls: dict[str, set[str]]) -> None:
        """What a function's parameters get; of ``partial(function, …)`` too."""
        passed: set[str] = set()
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            passed.update(self.identifiers(argument))
        for name in filter(None, (tail(node.func), *(tail(one) for one in node.args[:1]))):
            calls.setdefault(name, set()).update(passed)

    def _binding(self, name: str, binding: Binding, calls: dict[str, set[str]]) -> None:
        depends = self.depends.setdefault(name, set())
        self._guards(binding.where.guards, depends)
        node = binding.node
        if binding.kind in ("import", "from"):
            module = binding.module
            if is_flashinfer(module):
                self.names.add(name)
            else:
                self.imports.append((name, module, str(binding.detail)))
        elif binding.kind == "parameter" and isinstance(node, ast.arg):
            if node.annotation is not None:
                depends.update(self.identifiers(node.annotation))
            function = binding.where.scope.node
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                depends |= calls.get(function.name, set())
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for outside in (*node.decorator_list, *getattr(node, "bases", ())):
                depends.update(self.identifiers(outside))
        else:
            depends.update(self.identifiers(node))

    def _guards(self, guards: tuple[Branch | Attempt, ...], depends: set[str]) -> None:
        for guard in guards:
            if isinstance(guard, Branch):
                depends.update(self.identifiers(guard.test))
            else:
                for statement in guard.statement.body:
                    depends.update(self.identifiers(statement))

    def _returns(self, scope: Scope, syntax: Syntax) -> None:
        """A function depends on what it returns, and on what decides that."""
        if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            depends = self.depends.setdefault(scope.node.name, set())
            for node in scope.returns:
                depends.update(self.identifiers(node))
                self._guards(syntax.where[node].guards, depends)

    def spread(self, concerned: Callable[[str, str], bool]) -> bool:
        """Mark what depends on FlashInfer, or on an import that is `concerned`; whether anything is new."""
        before = len(self.names)
        self._marked.clear()
        self.names |= {name for name, module, detail in self.imports if concerned(module, detail)}
        pending = True
        while pending:
            pending = False
            for name, depends in self.depends.items():
                if name not in self.names and not depends.isdisjoint(self.names):
                    self.names.add(name)
                    pending = True
        return len(self.names) != before

    def identifiers(self, node: ast.AST) -> list[str]:
        """The names and attributes in a node, and whether a text in it names FlashInfer."""
        start, end = self._parts.get(node, (0, 0))
        return self._words[start:end]

    def __contains__(self, node: ast.AST) -> bool:
        """Whether the node, or one in it, has a name that is marked."""
        if not self._marked:
            self._marked = list(accumulate((word in self.names for word in self._words), initial=0))
        start, end = self._parts.get(node, (0, 0))
        return self._marked[end] > self._marked[start]


def _identifiers(node: ast.AST) -> Iterator[str]:
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

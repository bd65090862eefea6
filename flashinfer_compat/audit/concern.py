"""Which names of a file can have to do with FlashInfer at all: everything else need not be looked at.

A name is marked when something that is marked can become its value, as far as `evaluate` follows values. Scopes are not
told apart, so that nothing is lost; a key is a name, or ``.name`` for an attribute. Functions that say no marked name
stay unread.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from ..surfaces.model import PACKAGE
from ..surfaces.names import is_flashinfer
from .releases import RAW_MODULES
from .syntax import Attempt, Binding, Branch, Guard, Syntax, tail

#: Stands for FlashInfer itself where a text names one of its modules.
_TEXT = f'"{PACKAGE}"'
#: Texts that say that themselves; "flashinfer" alone is what engines call a backend.
_TEXTS = (f"{PACKAGE}.", f"{PACKAGE}-python", f"{PACKAGE}_python")
#: Leaves words and line ends of a text: splitting it is quicker than a regular expression.
_WORDS = bytes(one if chr(one).isalnum() or one in b"_\n\r" or one > 127 else 32 for one in range(256))
#: Functions whose result `evaluate` knows from what they are given.
_LOOKS_AT_ARGUMENTS = {"hasattr", "getattr", "find_spec", "import_module", "__import__", "callable", "bool", "all"}
_LOOKS_AT_ARGUMENTS |= {"any", "signature", "partial", "MethodType", "cast", "version", "Version", "parse"}
#: Expressions that stand for what one of their parts stands for.
_OF_THEIR_PARTS = (
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.UnaryOp,
    ast.NamedExpr,
    ast.Await,
    ast.Starred,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.ListComp,
    ast.GeneratorExp,
    ast.comprehension,
)


class Concern:
    """A file's marked names. `makes` tells whether a dotted name gives, called, an object of a FlashInfer class."""

    def __init__(self, syntax: Syntax, source: bytes, makes: Callable[[str], bool]) -> None:
        self._syntax = syntax
        self._makes = makes
        self.names: set[str] = set()
        #: Imports of other modules than FlashInfer's: bound name, module and name there.
        self.imports: list[tuple[str, str, str]] = []
        self._own_modules: set[str] = set()
        #: What was imported from FlashInfer, by bound name, and what of it makes nothing that is followed.
        self._dotted: dict[str, str] = {}
        self._plain: set[str] = set()
        self._feeds: dict[str, list[str]] = {}
        self._guards: set[Guard] = set()
        self._read = [0, 0, 0]  # how many nodes, bindings and returns of the syntax have been taken in
        self._lines = source.translate(_WORDS).splitlines(keepends=True)
        self._saying: dict[bytes, list[ast.AST]] = {}  # word -> the unread functions that say it
        self._marked: list[str] = []
        self._list_unread()
        self._mark(_TEXT)
        for name in RAW_MODULES:
            self._mark(f".{name}")
        self._take_in()

    def spread(self, concerned: Callable[[str, str], bool]) -> bool:
        """Mark what depends on an import that is `concerned`; whether anything is new."""
        before = len(self.names)
        for name, module, detail in self.imports:
            if name not in self.names and concerned(module, detail):
                self._mark(name)
        self._take_in()
        return len(self.names) != before

    def mark_methods(self, names: frozenset[str]) -> None:
        """Mark methods of these names, whatever they are called on."""
        for name in names:
            if f".{name}" not in self.names:
                self._mark(f".{name}")
        self._take_in()

    def read(self, function: ast.AST) -> None:
        """Have a function read that is followed for another reason than its names."""
        if function in self._syntax.unread:
            self._syntax.read_body(function)
            self._take_in()

    def __contains__(self, node: ast.AST) -> bool:
        """Whether an expression can stand for something of FlashInfer's."""
        return any(key in self.names for key in self._keys(node))

    def defines(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether what a function returns can have to do with FlashInfer."""
        return function.name in self.names or f".{function.name}" in self.names

    # What an expression can get its value from

    def _keys(self, node: ast.AST | None) -> Iterator[str]:
        pending: list[ast.AST | None] = [node]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield f".{node.attr}"
                pending.append(node.value)
            elif isinstance(node, ast.Constant):
                if isinstance(node.value, str) and node.value.startswith(_TEXTS):
                    yield _TEXT
            elif isinstance(node, ast.Call):
                name = tail(node.func)
                if name in _LOOKS_AT_ARGUMENTS:
                    pending += node.args
                if any(map(_is_text, node.args)):
                    yield _TEXT  # helper("flashinfer", …)
                if isinstance(node.func, ast.Attribute):
                    yield f".{name}"  # of an audited class
                    if name in ("split", "startswith") or self._leads_on(node.func):
                        pending.append(node.func.value)
                elif name not in self._plain:
                    pending.append(node.func)
            elif isinstance(node, ast.Subscript):
                pending.append(node.value)
            elif isinstance(node, _OF_THEIR_PARTS):
                pending.extend(ast.iter_child_nodes(node))

    def _leads_on(self, node: ast.Attribute) -> bool:
        """Whether ``module.function`` is of an audited module, or makes an object of a class of FlashInfer's."""
        names = []
        outer: ast.expr = node
        while isinstance(outer, ast.Attribute):
            names.append(outer.attr)
            outer = outer.value
        if not isinstance(outer, ast.Name):
            return False
        if outer.id in self._dotted:
            return self._makes(".".join([self._dotted[outer.id], *reversed(names)]))
        return outer.id in self._own_modules

    # Reading and marking

    def _list_unread(self) -> None:
        for function in self._syntax.unread:
            start, end = function.lineno - 1, function.end_lineno  # type: ignore[attr-defined]
            for word in set(b"".join(self._lines[start:end]).split()):
                word = PACKAGE.encode() if word.startswith(PACKAGE.encode()) else word
                self._saying.setdefault(word, []).append(function)

    def _mark(self, key: str) -> None:
        if key not in self.names and key != "_":
            self.names.add(key)
            self._marked.append(key)

    def _link(self, key: str, to: str) -> None:
        """`to` is marked when `key` is."""
        if key in self.names:
            self._mark(to)
        else:
            self._feeds.setdefault(key, []).append(to)

    def _link_all(self, node: ast.AST | None, to: str) -> None:
        for key in self._keys(node):
            if key != to:
                self._link(key, to)

    def _take_in(self) -> None:
        """Link what has been read, mark what follows, read the functions that say it, until nothing is new."""
        while True:
            self._take_in_read()
            if not self._marked:
                return
            while self._marked:
                key = self._marked.pop()
                for to in self._feeds.pop(key, ()):
                    self._mark(to)
                word = PACKAGE if key == _TEXT else key.lstrip(".")
                for function in self._saying.pop(word.encode(), ()):
                    self._syntax.read_body(function)

    def _take_in_read(self) -> None:
        nodes, bound, returns = self._syntax.nodes, self._syntax.bound, self._syntax.returns
        self._read, (node, binding, result) = [len(nodes), len(bound), len(returns)], self._read
        for name, one, is_attribute in bound[binding:]:
            self._binding(name, one, is_attribute)
        for call, _ in nodes[node:]:
            if isinstance(call, ast.Call):
                self._call(call)
        for statement, where in returns[result:]:
            function = where.scope.node
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for key in (function.name, f".{function.name}"):
                    self._link_all(statement.value, key)
                    for guard in where.guards:
                        self._link(self._guard(guard), key)

    def _call(self, node: ast.Call) -> None:
        """What a function's parameters get; of ``partial(function, …)`` too."""
        dot = "." if isinstance(node.func, ast.Attribute) else ""
        passed = [(dot + tail(node.func), node.args)]
        if passed[0][0] in ("partial", "MethodType", ".partial", ".MethodType") and node.args:
            passed.append((tail(node.args[0]), node.args[1:]))
        for name, arguments in passed:
            if name:
                for position, argument in enumerate(arguments):
                    self._link_all(argument, f"{name}({position}")
                for keyword in node.keywords:
                    self._link_all(keyword.value, f"{name}({keyword.arg}=")
        if isinstance(node.func, ast.Attribute) and node.func.attr == "append" and node.args:
            held = tail(node.func.value)
            for key in (held, f".{held}"):
                self._link_all(node.args[0], key)

    def _binding(self, name: str, binding: Binding, is_attribute: bool) -> None:
        scope = binding.where.scope
        if is_attribute:
            keys = [f".{name}"]
            others = scope.enclosing_class.attributes[name] if scope.enclosing_class is not None else []
        else:
            keys = [name, f".{name}"] if scope.is_class else [name]
            others = (self._syntax.scope if name in scope.globals else scope).bindings[name]
        for key in keys:
            self._value(key, binding)
            if len(others) > 1:
                self._plain.discard(key)
                # Which of them is in force, the guards decide; it matters if one of them says something by itself.
                if key not in self.names and any(map(_says_something, others)):
                    for one in others:
                        for guard in one.where.guards:
                            self._link(self._guard(guard), key)

    def _value(self, key: str, binding: Binding) -> None:
        node = binding.node
        if binding.kind in ("import", "from"):
            if not is_flashinfer(binding.module):
                self.imports.append((key, binding.module, str(binding.detail)))
                self._own_modules.add(key)
                return
            self._mark(key)
            self._dotted[key] = f"{binding.module}.{binding.detail}" if binding.kind == "from" else binding.module
            if binding.kind == "from" and not self._makes(self._dotted[key]):
                self._plain.add(key)
        elif binding.kind == "parameter" and isinstance(node, ast.arg):
            self._parameter(key, node, binding)
        elif binding.kind == "annotated" and isinstance(node, ast.AnnAssign):
            self._annotation(node.annotation, key)
            self._link_all(node.value, key)
        elif isinstance(node, ast.ClassDef):
            for base in node.bases:
                for to in (key, "self"):  # what it inherits, its methods use
                    self._link_all(base, to)
        elif isinstance(node, ast.expr) and binding.kind != "other":
            self._link_all(node, key)

    def _parameter(self, key: str, node: ast.arg, binding: Binding) -> None:
        self._annotation(node.annotation, key)
        function = binding.where.scope.node
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        outside = binding.where.scope.parent
        is_method = int(outside is not None and outside.is_class)
        position = names.index(node.arg) if node.arg in names else len(names)
        if position >= is_method:
            for called, at in ((function.name, position), (f".{function.name}", position - is_method)):
                self._link(f"{called}({at}", key)
                self._link(f"{called}({node.arg}=", key)

    def _annotation(self, node: ast.expr | None, key: str) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for word in re.findall(r"\w+", node.value):
                self._link(word, key)
        elif isinstance(node, ast.Name):
            self._link(node.id, key)
        elif node is not None:
            for inner in ast.walk(node):
                if isinstance(inner, (ast.Name, ast.Attribute)):
                    self._link(tail(inner), key)
                    self._link_all(inner, key)

    def _guard(self, guard: Guard) -> str:
        """The key of a guard: it is marked when its outcome can depend on FlashInfer."""
        key = f"guard {id(guard.test if isinstance(guard, Branch) else guard.statement)}"
        if guard not in self._guards:
            self._guards.add(guard)
            if isinstance(guard, Branch):
                self._link_all(guard.test, key)
            elif isinstance(guard, Attempt):
                for statement in guard.statement.body:
                    for node in ast.walk(statement):
                        if isinstance(node, (ast.Import, ast.ImportFrom)):
                            self._import(node, key)
                        elif isinstance(node, (ast.Attribute, ast.Call)):
                            self._link_all(node, key)
        return key

    def _import(self, node: ast.Import | ast.ImportFrom, key: str) -> None:
        for alias in node.names:
            module = alias.name if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
            if is_flashinfer(module):
                self._mark(key)
            self._link(alias.asname or alias.name.partition(".")[0], key)


def _says_something(binding: Binding) -> bool:
    """Whether a binding's value is known whatever FlashInfer does: a flag, a table, a definition."""
    node = binding.node.value if isinstance(binding.node, ast.AnnAssign) else binding.node
    return isinstance(node, (ast.Constant, ast.List, ast.Tuple, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(PACKAGE)

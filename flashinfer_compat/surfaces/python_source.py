"""A Python module's surface from its source, with ``ast`` alone: nothing is imported or run."""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from .model import PACKAGE, Alias, Class, Constant, Function, Kind, Module, Parameter, Symbol

#: Longer values are recorded by their kind and a digest: a change shows, a table of kernels does not fill the record.
LONGEST_VALUE = 80
LONGEST_VALUE_LINES = 8

_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(source: bytes) -> ast.Module:
    """The tree of a module's source. Raises ``SyntaxError`` for source that this Python cannot parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the recorded source are not ours to report
        return ast.parse(source)


def read_module(name: str, tree: ast.Module, source: bytes, *, package: bool) -> Module:
    """What the module `name` binds."""
    return _Reader(name, package, tree, source).module()


class _Reader:
    def __init__(self, name: str, package: bool, tree: ast.Module, source: bytes) -> None:
        self.name = name
        self.package = package
        self.tree = tree
        self.lines = source.splitlines()
        #: Module-level assignments, for the tables that __all__ and __getattr__ name.
        self.values: dict[str, ast.expr] = {}
        self.exports: list[ast.expr] = []
        #: Imports under ``if TYPE_CHECKING:``; not bound at run time, but they say where a lazy name comes from.
        self.typing_only: dict[str, Symbol] = {}

    def module(self) -> Module:
        symbols = self.block(self.tree.body, ())
        exports = self.exported()
        getattr_node = next((node for node in self.tree.body if _is_function(node, "__getattr__")), None)
        dynamic = False
        if isinstance(getattr_node, _FunctionNode):
            lazy = _LazyNames(self, getattr_node, symbols)
            for name, target in lazy.found.items():
                symbols.setdefault(name, Alias(target, lazy=True))
            for name in exports or ():
                symbols.setdefault(name, Alias(self.typed_target(name), lazy=True))
            dynamic = lazy.dynamic
        return Module(self.name, symbols, exports, self.package, dynamic)

    def typed_target(self, name: str) -> str | None:
        known = self.typing_only.get(name)
        return known.target if isinstance(known, Alias) else None

    # Bodies

    def block(self, body: Iterable[ast.stmt], path: tuple[str, ...]) -> dict[str, Symbol]:
        """The names that statements bind, in source order. `path` leads to the class whose body this is, if any."""
        symbols: dict[str, Symbol] = {}
        overloads: dict[str, list[Function]] = {}
        for node in body:
            if isinstance(node, _FunctionNode):
                self.define(node, symbols, overloads)
            elif isinstance(node, ast.ClassDef):
                symbols[node.name] = self.read_class(node, path)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                symbols |= self.imported(node)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    self.assign(target, node.value, symbols, path)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                value = None if node.value is None else self.short(node.value)
                symbols[node.target.id] = Constant(value, text(node.annotation))
                if not path and node.value is not None:
                    self.values[node.target.id] = node.value
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and not path:
                if node.target.id == "__all__":
                    self.exports.append(node.value)
            elif isinstance(node, ast.Expr):
                self.extend_exports(node.value)
            elif isinstance(node, ast.Delete):
                for deleted in node.targets:
                    if isinstance(deleted, ast.Name):
                        symbols.pop(deleted.id, None)
            elif isinstance(node, ast.If) and _is_type_checking(node.test):
                self.typing_only |= self.block(node.body, path)
                symbols |= self.block(node.orelse, path)
            else:
                # The first arm is what a complete installation runs; an alternative binds what that one does not.
                first, *alternatives = _arms(node) or [[]]
                symbols |= self.block(first, path)
                for alternative in alternatives:
                    for name, symbol in self.block(alternative, path).items():
                        symbols.setdefault(name, symbol)
        for name, found in overloads.items():
            implementation = symbols.get(name)
            if isinstance(implementation, Function):
                symbols[name] = replace(implementation, overloads=tuple(found))
        return symbols

    def define(self, node: _FunctionNode, symbols: dict[str, Symbol], overloads: dict[str, list[Function]]) -> None:
        function = read_function(node)
        marks = {decorator.rpartition(".")[2] for decorator in function.decorators}
        if "overload" in marks:
            overloads.setdefault(node.name, []).append(replace(function, decorators=()))
            symbols.setdefault(node.name, function)
        elif not marks & {"setter", "deleter"}:  # a property's setter has its getter's name
            symbols[node.name] = function

    def read_class(self, node: ast.ClassDef, path: tuple[str, ...]) -> Class:
        decorators, accepts = read_decorators(node.decorator_list)
        bases = tuple(text(base) for base in node.bases)
        members = self.block(node.body, (*path, node.name))
        return Class(bases, members, decorators, accepts, attributes_set(node.body))

    def assign(self, target: ast.expr, value: ast.expr, symbols: dict[str, Symbol], path: tuple[str, ...]) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts: Iterable[ast.expr] = value.elts if isinstance(value, (ast.Tuple, ast.List)) else ()
            values = list(parts)
            for index, part in enumerate(target.elts):
                self.assign(part, values[index] if len(values) == len(target.elts) else value, symbols, path)
            return
        if not isinstance(target, ast.Name):
            return
        if not path:
            if target.id == "__all__":
                self.exports = [value]
                return
            self.values[target.id] = value
        if isinstance(value, ast.Name) and isinstance(symbols.get(value.id), (Function, Class, Alias)):
            # `begin_forward = plan`: another name of the same object.
            symbols[target.id] = Alias(f"{self.name}:{'.'.join((*path, value.id))}")
        else:
            symbols[target.id] = Constant(self.short(value))

    # Imports

    def imported(self, node: ast.Import | ast.ImportFrom) -> dict[str, Symbol]:
        """The names that an import binds to FlashInfer's own; others are no part of its surface."""
        if isinstance(node, ast.Import):
            return {
                name.asname: Alias(f"{name.name}:")
                for name in node.names
                if name.asname and name.name.partition(".")[0] == PACKAGE
            }
        module = self.absolute(node.module or "", node.level)
        if module.partition(".")[0] != PACKAGE:
            return {}
        return {
            # A star is resolved when all modules are read.
            (f"*{module}" if name.name == "*" else name.asname or name.name): Alias(f"{module}:{name.name}")
            for name in node.names
        }

    def absolute(self, module: str, level: int) -> str:
        if not level:
            return module
        parents = self.name.split(".")
        parents = parents[: len(parents) - level + (1 if self.package else 0)]
        return ".".join([*parents, module] if module else parents)

    # __all__

    def short(self, node: ast.expr) -> str:
        """`text`, or the kind and a digest where it is long."""
        last = node.end_lineno or node.lineno
        if last - node.lineno > LONGEST_VALUE_LINES:
            # Unparsing a long table costs more than reading the rest of the module; its lines tell as much.
            written = b" ".join(b" ".join(self.lines[node.lineno : last]).split())
            return f"<{type(node).__name__.lower()} {_digest(written)}>"
        whole = text(node)
        if len(whole) <= LONGEST_VALUE or whole.startswith(("field(", "dataclasses.field(")):
            return whole
        return f"<{type(node).__name__.lower()} {_digest(whole.encode('utf-8', 'surrogatepass'))}>"

    def extend_exports(self, node: ast.expr) -> None:
        """``__all__.append(...)`` and ``.extend(...)``."""
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "__all__"
            and node.args
        ):
            added = node.args[0]
            self.exports.append(ast.List([added], ast.Load()) if node.func.attr == "append" else added)

    def exported(self) -> tuple[str, ...] | None:
        names: list[str] = []
        if not self.exports:
            return None
        for expression in self.exports:
            values = self.literal(expression)
            if values is None:
                return None
            names += [name for name in values if isinstance(name, str)]
        return tuple(dict.fromkeys(names))

    def literal(self, node: ast.expr | None, depth: int = 0) -> Any:
        """The value of an expression of literals, of module-level tables of such, and of their sums; None for others.

        Collections come back as lists, dictionaries as dictionaries.
        """
        if node is None or depth > 8:
            return None
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.literal(self.values.get(node.id), depth + 1)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            items: list[Any] = []
            for element in node.elts:
                value = self.literal(element.value if isinstance(element, ast.Starred) else element, depth + 1)
                if isinstance(element, ast.Starred):
                    items += list(value or ())
                else:
                    items.append(value)
            return items
        if isinstance(node, ast.Dict):
            table: dict[Any, Any] = {}
            for key, value_node in zip(node.keys, node.values, strict=True):
                if key is None:
                    table |= self.literal(value_node, depth + 1) or {}
                else:
                    key_value = self.literal(key, depth + 1)
                    if isinstance(key_value, str):
                        table[key_value] = self.literal(value_node, depth + 1)
            return table
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.BitOr)):
            left, right = self.literal(node.left, depth + 1), self.literal(node.right, depth + 1)
            if isinstance(left, dict) and isinstance(right, dict):
                return left | right
            return [*left, *right] if isinstance(left, list) and isinstance(right, list) else None
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in ("frozenset", "set", "tuple", "list", "sorted"):
                inner = self.literal(node.args[0], depth + 1) if node.args else []
                return None if inner is None else list(inner)
            if isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
                return {word.arg: self.literal(word.value, depth + 1) for word in node.keywords if word.arg}
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "copy"):
                return self.literal(node.func.value, depth + 1)
        return None


class _LazyNames:
    """The names that a module's ``__getattr__`` answers, each with the place it takes them from if that is written.

    Read are the tests on the name (``name == "x"``, ``name in TABLE``, ``TABLE.get(name)``) and, for the place, the
    import or ``getattr`` that follows in the same arm; an import under TYPE_CHECKING settles it first.
    """

    def __init__(self, reader: _Reader, node: _FunctionNode, symbols: Mapping[str, Symbol]) -> None:
        self.reader = reader
        self.symbols = symbols
        self.parameter = node.args.args[0].arg if node.args.args else "name"
        self.found: dict[str, str | None] = {}
        self.dynamic = False
        #: Imports in the function itself, so far.
        self.local: dict[str, Symbol] = {}
        self.body(node.body)
        if not self.found and not _only_raises(node.body):
            self.dynamic = True

    def body(self, statements: list[ast.stmt]) -> None:
        for index, statement in enumerate(statements):
            if isinstance(statement, ast.If):
                negative, tables = self.tested(statement.test)
                # `if name not in TABLE: raise` leaves the names to what follows.
                arm = statements[index + 1 :] if negative else statement.body
                for names in tables:
                    self.answer(names, arm)
                if not tables:
                    self.body(statement.body)
                self.body(statement.orelse)
            elif isinstance(statement, ast.Try):
                self.body(statement.body)
            elif isinstance(statement, (ast.Import, ast.ImportFrom)):
                self.local |= self.reader.imported(statement)
            else:
                # Further on, an arm that tests the name is about other names.
                rest = [one for one in statements[index:] if not (isinstance(one, ast.If) and self.tested(one.test)[1])]
                for table in self.subscripts(statement):
                    self.answer(table, rest)

    def tested(self, test: ast.expr) -> tuple[bool, list[Any]]:
        """Whether the test is negative, and the tables that the name is looked for in."""
        if isinstance(test, ast.BoolOp):
            parts = [self.tested(value) for value in test.values]
            return any(negative for negative, _ in parts), [table for _, tables in parts for table in tables]
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and self.is_name(test.left)):
            return False, []
        operator, right = test.ops[0], test.comparators[0]
        value = self.reader.literal(right)
        if isinstance(operator, (ast.Eq, ast.NotEq)) and isinstance(value, str):
            return isinstance(operator, ast.NotEq), [[value]]
        if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(value, (list, dict)):
            return isinstance(operator, ast.NotIn), [value]
        return False, []

    def subscripts(self, statement: ast.stmt) -> Iterator[dict[str, Any]]:
        """Tables indexed by the name in a statement: ``TABLE.get(name)``, ``TABLE[name]``."""
        for node in ast.walk(statement):
            table: ast.expr | None = None
            if isinstance(node, ast.Subscript) and self.is_name(node.slice):
                table = node.value
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "get"
                and node.args
                and self.is_name(node.args[0])
            ):
                table = node.func.value
            value = self.reader.literal(table)
            if isinstance(value, dict):
                yield value

    def answer(self, names: Any, arm: list[ast.stmt]) -> None:
        for name in names:
            if isinstance(name, str) and name not in self.found:
                entry = names[name] if isinstance(names, dict) else None
                target = self.reader.typed_target(name) or self.place(name, entry, arm)
                self.found[name] = target

    def place(self, name: str, entry: Any, arm: list[ast.stmt]) -> str | None:
        """Where the arm takes `name` from; `entry` is what its table holds for it."""
        imported: dict[str, Symbol] = dict(self.local)
        for node in (inner for statement in arm for inner in ast.walk(statement)):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imported |= self.reader.imported(node)
        for node in (inner for statement in arm for inner in ast.walk(statement)):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Name):
                found = imported.get(node.value.id)
                if isinstance(found, Alias):
                    return found.target
                if node.value.id in self.symbols:
                    return f"{self.reader.name}:{node.value.id}"
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"):
                continue
            if not node.args:
                continue
            holder = node.args[0]
            attribute = name
            if len(node.args) > 1 and not self.is_name(node.args[1]) and isinstance(entry, str):
                attribute = entry
            if isinstance(holder, ast.Name):
                bound = imported.get(holder.id) or self.symbols.get(holder.id)
                if isinstance(bound, Alias) and bound.target is not None:
                    module, _, inner_name = bound.target.partition(":")
                    return f"{module}.{inner_name}:{attribute}" if inner_name else f"{module}:{attribute}"
        if isinstance(entry, (list, tuple)) and len(entry) == 2 and all(isinstance(part, str) for part in entry):
            return f"{self.relative(entry[0])}:{entry[1]}"
        if isinstance(entry, str):
            return f"{self.relative(entry)}:{name}"
        return None

    def relative(self, module: str) -> str:
        level = len(module) - len(module.lstrip("."))
        return self.reader.absolute(module.lstrip("."), level if level or module.startswith(PACKAGE) else 1)

    def is_name(self, node: ast.expr | ast.slice) -> bool:
        return isinstance(node, ast.Name) and node.id == self.parameter


def read_function(node: _FunctionNode) -> Function:
    """The signature of a function definition."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + [text(default) for default in given.defaults]
    parameters = [
        _parameter(one, Kind.POSITIONAL_ONLY if index < len(given.posonlyargs) else Kind.POSITIONAL_OR_KEYWORD, default)
        for index, (one, default) in enumerate(zip(positional, defaults, strict=True))
    ]
    if given.vararg is not None:
        parameters.append(_parameter(given.vararg, Kind.VAR_POSITIONAL, None))
    parameters += [
        _parameter(one, Kind.KEYWORD_ONLY, None if default is None else text(default))
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg is not None:
        parameters.append(_parameter(given.kwarg, Kind.VAR_KEYWORD, None))
    decorators, accepts = read_decorators(node.decorator_list)
    returns = None if node.returns is None else text(node.returns)
    return Function(tuple(parameters), returns, decorators, accepts)


def attributes_set(body: Iterable[ast.stmt]) -> tuple[str, ...]:
    """The attributes that the ``__init__`` of a class's body sets on its first parameter."""
    found: dict[str, None] = {}
    for node in body:
        if not (isinstance(node, ast.FunctionDef) and node.name == "__init__" and node.args.args):
            continue
        own = node.args.args[0].arg
        for inner in ast.walk(node):
            if (
                isinstance(inner, ast.Attribute)
                and isinstance(inner.ctx, ast.Store)
                and isinstance(inner.value, ast.Name)
                and inner.value.id == own
            ):
                found[inner.attr] = None
    return tuple(sorted(found))


def read_decorators(nodes: Iterable[ast.expr]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Decorators' texts, and the keywords that ``@deprecated_aliases(old="new")`` takes beside the signature's."""
    decorators: list[str] = []
    accepts: dict[str, str] = {}
    for node in nodes:
        called = node.func if isinstance(node, ast.Call) else node
        name = text(called)
        if isinstance(node, ast.Call) and name.rpartition(".")[2] == "deprecated_aliases":
            accepts |= {
                word.arg: word.value.value
                for word in node.keywords
                if word.arg and isinstance(word.value, ast.Constant) and isinstance(word.value.value, str)
            }
        whole = text(node)
        decorators.append(whole if len(whole) <= LONGEST_VALUE else name)
    return tuple(decorators), accepts


def keywords_taken(source_tree: ast.Module) -> dict[str, dict[str, str]]:
    """Module-level decorators that pop keywords by name before the call: decorator -> keyword -> what it stands for.

    That is empty where the decorator takes the keyword for itself (``skip_check`` of ``backend_requirement``).
    """
    found: dict[str, dict[str, str]] = {}
    for function in source_tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for inner in ast.walk(function):
            if isinstance(inner, ast.FunctionDef) and inner is not function and inner.args.kwarg is not None:
                taken = _popped(inner, inner.args.kwarg.arg)
                if taken:
                    found[function.name] = taken
    return found


def _popped(function: ast.FunctionDef, keywords: str) -> dict[str, str]:
    old: list[str] = []
    new: list[str] = []
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "pop"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == keywords
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            old.append(node.args[0].value)
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == keywords
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        ):
            new.append(node.slice.value)
    return dict(zip(old, new, strict=True)) if len(old) == len(new) else dict.fromkeys(old, "")


def text(node: ast.expr) -> str:
    """Source text in normal form: layout, quotes and parentheses do not count as a change."""
    # What annotations are made of, written here: `ast.unparse` takes ten times as long.
    if isinstance(node, ast.Constant):
        return "..." if node.value is ... else repr(node.value)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return (
            f"{text(node.value)}.{node.attr}"
            if isinstance(node.value, (ast.Name, ast.Attribute))
            else ast.unparse(node)
        )
    if isinstance(node, ast.Subscript) and isinstance(node.value, (ast.Name, ast.Attribute)):
        inside = node.slice
        parts = inside.elts if isinstance(inside, ast.Tuple) and inside.elts else [inside]
        if not any(isinstance(part, (ast.Starred, ast.Slice, ast.Tuple, ast.NamedExpr)) for part in parts):
            return f"{text(node.value)}[{', '.join(map(text, parts))}]"
    return ast.unparse(node)


def _digest(whole: bytes) -> str:
    return hashlib.sha256(whole).hexdigest()[:8]


def _parameter(node: ast.arg, kind: Kind, default: str | None) -> Parameter:
    return Parameter(node.arg, kind, None if node.annotation is None else text(node.annotation), default)


def _arms(node: ast.stmt) -> list[list[ast.stmt]]:
    """The statement lists of a compound statement, in the order in which FlashInfer means them."""
    if isinstance(node, (ast.If, ast.For, ast.While)):
        return [node.body, node.orelse]
    if isinstance(node, ast.Try):
        return [[*node.body, *node.orelse], *(handler.body for handler in node.handlers), node.finalbody]
    if isinstance(node, ast.With):
        return [node.body]
    return []


def _is_type_checking(test: ast.expr) -> bool:
    return text(test).rpartition(".")[2] == "TYPE_CHECKING" if isinstance(test, (ast.Name, ast.Attribute)) else False


def _is_function(node: ast.stmt, name: str) -> bool:
    return isinstance(node, _FunctionNode) and node.name == name


def _only_raises(body: list[ast.stmt]) -> bool:
    return all(isinstance(node, (ast.Raise, ast.Expr)) for node in body)

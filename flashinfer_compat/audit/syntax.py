"""A file's scopes: which names are bound where, and under which conditions each statement and expression is reached.

The bodies of functions are read when somebody asks for them: few of an engine's have to do with FlashInfer.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, eq=False)
class Branch:
    """Reached only while `test` is true, or false if not `taken`."""

    test: ast.expr
    taken: bool
    #: What runs in the other case; () where nothing does.
    otherwise: tuple[ast.stmt, ...] = ()


@dataclass(frozen=True, eq=False)
class Attempt:
    """Reached as `part` of a try statement: ``body``, ``else``, or as the handler `part`."""

    statement: ast.Try
    part: str | ast.ExceptHandler


Guard = Branch | Attempt


@dataclass(frozen=True, eq=False)
class Where:
    """A place in a file: the scope, and the guards around it, the outermost first."""

    scope: Scope
    guards: tuple[Guard, ...] = ()

    def within(self, *guards: Guard) -> Where:
        return Where(self.scope, (*self.guards, *guards))


@dataclass(frozen=True, eq=False)
class Binding:
    """One way in which a name comes to be. `kind` says what `node` is to it."""

    kind: str  # import, from, value, item, parameter, define, other
    node: ast.AST
    where: Where
    #: The imported module (with the dots of a relative import), or nothing.
    module: str = ""
    #: The name in that module; of an item the path into the unpacked value.
    detail: str | tuple[int, ...] = ""

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 0)


@dataclass(eq=False)
class Scope:
    """The names of a module, class or function. A class's methods do not see the class's names."""

    node: ast.Module | ast.ClassDef | Definition | ast.expr
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    #: Of a class: what its methods assign to ``self.…``.
    attributes: dict[str, list[Binding]] = field(default_factory=dict)
    #: Of a function: the names that it binds in the module.
    globals: set[str] = field(default_factory=set)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def enclosing_class(self) -> Scope | None:
        """The class whose method this is or is in."""
        scope: Scope | None = self
        while scope is not None and not scope.is_class:
            scope = scope.parent
        return scope


@dataclass(eq=False)
class Syntax:
    """A parsed file. `where` tells the place of each node that is a use or holds one."""

    tree: ast.Module
    scope: Scope
    nodes: list[tuple[ast.AST, Where]]
    where: dict[ast.AST, Where]
    scopes: dict[ast.AST, Scope]
    #: Functions whose bodies have not been read, and the places inside them.
    unread: dict[ast.AST, Where] = field(default_factory=dict)
    #: What has been bound, in the order of reading: the name, and whether to an attribute of ``self``.
    bound: list[tuple[str, Binding, bool]] = field(default_factory=list)
    returns: list[tuple[ast.Return, Where]] = field(default_factory=list)

    def read_body(self, function: ast.AST) -> None:
        """Read a function's body, if that has not been done."""
        where = self.unread.pop(function, None)
        if where is not None and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            _Reader(self, inside=True).block(function.body, where)


_KEPT = frozenset((ast.Import, ast.ImportFrom, ast.Attribute, ast.Call, ast.Assign, ast.Compare, ast.Tuple, ast.Name))
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def read(tree: ast.Module) -> Syntax:
    """The scopes and places of a file, without functions' bodies. Raises `RecursionError` of what is nested deeply."""
    scope = Scope(tree, None)
    reader = _Reader(Syntax(tree, scope, [], {}, {tree: scope}))
    reader.block(tree.body, Where(scope))
    return reader.syntax


def tail(node: ast.AST | None) -> str:
    """The last name of ``a.b.c`` or ``c``; "" of anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def ends(block: Sequence[ast.stmt]) -> bool:
    """Whether nothing after the block is reached."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.If):
        return ends(last.body) and ends(last.orelse)
    return isinstance(last, _ENDS)


class _Reader:
    def __init__(self, syntax: Syntax, *, inside: bool = False) -> None:
        self.syntax = syntax
        self.inside = inside  # of a function: what it defines is read with it

    def block(self, statements: Iterable[ast.stmt], where: Where) -> None:
        for statement in statements:
            self.statement(statement, where)
            if isinstance(statement, ast.If):
                # What follows `if not …: return` is reached only otherwise.
                if ends(statement.body):
                    where = where.within(Branch(statement.test, False, tuple(statement.body)))
                elif ends(statement.orelse):
                    where = where.within(Branch(statement.test, True, tuple(statement.orelse)))

    def statement(self, node: ast.stmt, where: Where) -> None:
        self.keep(node, where)
        method: Callable[..., None] | None = getattr(self, f"on_{type(node).__name__.lower()}", None)
        if method is not None:
            method(node, where)
        else:
            for value in vars(node).values():
                for child in value if value.__class__ is list else (value,):
                    self.child(child, where)

    def child(self, node: object, where: Where) -> None:
        if isinstance(node, ast.expr):
            self.expression(node, where)
        elif isinstance(node, ast.stmt):
            self.statement(node, where)
        elif isinstance(node, ast.keyword):
            self.expression(node.value, where)
        elif isinstance(node, ast.AST):
            for inner in ast.iter_child_nodes(node):
                self.child(inner, where)

    def keep(self, node: ast.AST, where: Where) -> None:
        if type(node) in _KEPT:
            self.syntax.nodes.append((node, where))
        self.syntax.where[node] = where

    def bind(self, name: str, binding: Binding) -> None:
        scope = binding.where.scope
        bindings = self.syntax.scope.bindings if name in scope.globals else scope.bindings
        bindings.setdefault(name, []).append(binding)
        self.syntax.bound.append((name, binding, False))

    # Statements

    def on_global(self, node: ast.Global, where: Where) -> None:
        where.scope.globals.update(node.names)

    def on_import(self, node: ast.Import, where: Where) -> None:
        for name in node.names:
            bound = name.asname or name.name.partition(".")[0]
            self.bind(bound, Binding("import", node, where, name.name if name.asname else bound))

    def on_importfrom(self, node: ast.ImportFrom, where: Where) -> None:
        module = "." * node.level + (node.module or "")
        for name in node.names:
            self.bind(name.asname or name.name, Binding("from", node, where, module, name.name))

    def on_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, where: Where) -> None:
        self.bind(node.name, Binding("define", node, where))
        for decorator in node.decorator_list:
            self.expression(decorator, where)
        self.function(node, where)

    on_asyncfunctiondef = on_functiondef

    def function(self, node: Definition, where: Where) -> None:
        arguments = node.args
        for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
            self.expression(default, where)
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        for annotation in (*(one.annotation for one in every if one), getattr(node, "returns", None)):
            if annotation is not None:
                self.expression(annotation, where)
        scope = self.syntax.scopes[node] = Scope(node, where.scope)
        inside = Where(scope, where.guards)
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self.bind(argument.arg, Binding("parameter", argument, inside))
        for argument in filter(None, (arguments.vararg, arguments.kwarg)):
            self.bind(argument.arg, Binding("other", argument, inside))
        if isinstance(node, ast.Lambda):
            self.expression(node.body, inside)
        elif self.inside:
            self.block(node.body, inside)
        else:
            self.syntax.unread[node] = inside

    def on_classdef(self, node: ast.ClassDef, where: Where) -> None:
        self.bind(node.name, Binding("define", node, where))
        for outside in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.expression(outside, where)
        scope = self.syntax.scopes[node] = Scope(node, where.scope)
        self.block(node.body, Where(scope, where.guards))

    def on_return(self, node: ast.Return, where: Where) -> None:
        self.syntax.returns.append((node, where))
        if node.value is not None:
            self.expression(node.value, where)

    def on_if(self, node: ast.If, where: Where) -> None:
        self.expression(node.test, where)
        self.block(node.body, where.within(Branch(node.test, True, tuple(node.orelse))))
        self.block(node.orelse, where.within(Branch(node.test, False, tuple(node.body))))

    def on_while(self, node: ast.While, where: Where) -> None:
        self.expression(node.test, where)
        self.block(node.body, where.within(Branch(node.test, True)))
        self.block(node.orelse, where)

    def on_try(self, node: ast.Try, where: Where) -> None:
        self.block(node.body, where.within(Attempt(node, "body")))
        for handler in node.handlers:
            inside = where.within(Attempt(node, handler))
            if handler.name:
                self.bind(handler.name, Binding("other", handler, inside))
            self.block(handler.body, inside)
        self.block(node.orelse, where.within(Attempt(node, "else")))
        self.block(node.finalbody, where)

    on_trystar = on_try

    def on_assign(self, node: ast.Assign, where: Where) -> None:
        self.expression(node.value, where)
        for target in node.targets:
            self.target(target, node.value, where, ())

    def on_annassign(self, node: ast.AnnAssign, where: Where) -> None:
        self.expression(node.annotation, where)
        if node.value is not None:
            self.expression(node.value, where)
        self.target(node.target, node.value, where, (), node)

    def on_augassign(self, node: ast.AugAssign, where: Where) -> None:
        self.expression(node.value, where)
        self.target(node.target, None, where, ())

    def on_for(self, node: ast.For | ast.AsyncFor, where: Where) -> None:
        self.expression(node.iter, where)
        self.target(node.target, node.iter, where, (-1,))
        self.block(node.body, where)
        self.block(node.orelse, where)

    on_asyncfor = on_for

    def on_with(self, node: ast.With | ast.AsyncWith, where: Where) -> None:
        for item in node.items:
            self.expression(item.context_expr, where)
            if item.optional_vars is not None:
                self.target(item.optional_vars, item.context_expr, where, ())
        self.block(node.body, where)

    on_asyncwith = on_with

    def target(
        self,
        node: ast.expr,
        value: ast.expr | None,
        where: Where,
        path: tuple[int, ...],
        annotated: ast.AnnAssign | None = None,
    ) -> None:
        """A name or attribute that comes to hold `value`, or the part of it at `path` (-1: any element)."""
        self.keep(node, where)
        if isinstance(node, (ast.Tuple, ast.List)):
            for index, element in enumerate(node.elts):
                inner = element.value if isinstance(element, ast.Starred) else element
                self.target(inner, value, where, (*path, index))
            return
        if annotated is not None:
            binding = Binding("annotated", annotated, where)
        elif value is None:
            binding = Binding("other", node, where)
        else:
            binding = Binding("item" if path else "value", value, where, detail=path)
        if isinstance(node, ast.Name):
            self.bind(node.id, binding)
        else:
            for child in ast.iter_child_nodes(node):
                self.child(child, where)
            holder = where.scope.enclosing_class
            held = node.value if isinstance(node, ast.Attribute) else None
            if isinstance(node, ast.Attribute) and isinstance(held, ast.Name) and held.id in ("self", "cls") and holder:
                holder.attributes.setdefault(node.attr, []).append(binding)
                self.syntax.bound.append((node.attr, binding, True))

    # Expressions

    def expression(self, node: ast.expr, where: Where) -> None:
        kind = type(node)
        self.syntax.where[node] = where
        if kind in _KEPT:
            self.syntax.nodes.append((node, where))
        if kind is ast.Name or kind is ast.Constant:
            return
        special = _EXPRESSIONS.get(kind)
        if special is not None:
            special(self, node, where)
            return
        for value in vars(node).values():  # as ast.iter_child_nodes, which takes thrice the time
            if isinstance(value, ast.expr):
                self.expression(value, where)
            elif value.__class__ is list:
                for inner in value:
                    self.child(inner, where)

    def boolop(self, node: ast.BoolOp, where: Where) -> None:
        taken = isinstance(node.op, ast.And)
        for value in node.values:
            self.expression(value, where)
            where = where.within(Branch(value, taken))

    def ifexp(self, node: ast.IfExp, where: Where) -> None:
        self.expression(node.test, where)
        other, body = ast.Expr(node.orelse), ast.Expr(node.body)
        self.expression(node.body, where.within(Branch(node.test, True, (other,))))
        self.expression(node.orelse, where.within(Branch(node.test, False, (body,))))

    def namedexpr(self, node: ast.NamedExpr, where: Where) -> None:
        self.expression(node.value, where)
        self.bind(node.target.id, Binding("value", node.value, where))

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, where: Where) -> None:
        scope = self.syntax.scopes[node] = Scope(node, where.scope)
        inside = Where(scope, where.guards)
        for generator in node.generators:
            self.expression(generator.iter, inside)
            self.target(generator.target, generator.iter, inside, (-1,))
            for condition in generator.ifs:
                self.expression(condition, inside)
                inside = inside.within(Branch(condition, True))
        for result in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.expression(result, inside)


_EXPRESSIONS: dict[type[ast.AST], Callable[..., None]] = {
    ast.BoolOp: _Reader.boolop,
    ast.IfExp: _Reader.ifexp,
    ast.Lambda: _Reader.function,
    ast.NamedExpr: _Reader.namedexpr,
    ast.ListComp: _Reader.comprehension,
    ast.SetComp: _Reader.comprehension,
    ast.GeneratorExp: _Reader.comprehension,
    ast.DictComp: _Reader.comprehension,
}

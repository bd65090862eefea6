"""What expressions of the audited source stand for on one release: names looked up, simple functions followed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Concatenate, TypeVar

from packaging.version import InvalidVersion, Version

from ..surfaces.names import is_flashinfer
from .releases import RAW_MODULES, Releases
from .syntax import Attempt, Binding, Branch, Guard, Scope, Where, tail
from .tree import SourceFile, SourceTree, absolute, calls_of
from .values import (
    UNKNOWN,
    Instance,
    Literal,
    Method,
    Missing,
    Own,
    OwnInstance,
    OwnModule,
    Parameters,
    Partial,
    RawModule,
    Thing,
    Value,
    Values,
    Written,
    truths,
)

Environment = Mapping[str, Values]
_NOTHING: Environment = {}
#: How deep functions of the source are followed into each other, and how long a table in a loop may be.
_DEEPEST, _LONGEST = 8, 64
_DISTRIBUTIONS = ("flashinfer-python", "flashinfer_python")
_CATCHES = {
    "ImportError": ("ImportError", "ModuleNotFoundError", "Exception", "BaseException"),
    "AttributeError": ("AttributeError", "Exception", "BaseException"),
    "TypeError": ("TypeError", "Exception", "BaseException"),
}


class Raised(Exception):
    """The source, followed, comes to a name that the release lacks."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(missing.dotted)
        self.missing = missing


_Found = TypeVar("_Found")
_Answered = Callable[Concatenate["Evaluator", Any, SourceFile, ...], _Found]


def once(meanwhile: Any) -> Callable[[_Answered[_Found]], _Answered[_Found]]:
    """Answered once for a node; and once for all releases, where nothing that it rests on differs between them.

    `meanwhile` is the answer inside of itself, of something that is defined by itself.
    """

    def decorate(answer: _Answered[_Found]) -> _Answered[_Found]:
        name = answer.__name__

        def remembered(self: Evaluator, node: Any, file: SourceFile, *more: Any) -> _Found:
            memory = self.memory.setdefault(name, {})
            found: tuple[_Found, bool] | None = memory.get(node)
            if found is None and self.pattern is not None:
                remembered(self.pattern, node, file, *more)
                same, varies = self.pattern.memory[name][node]
                if not varies:
                    found = memory[node] = same, False
            if found is None:
                outside, self.varies = self.varies, False
                memory[node] = meanwhile, True
                found = memory[node] = answer(self, node, file, *more), self.varies
                self.varies = outside
            self.varies = self.varies or found[1]
            return found[0]

        return remembered

    return decorate


class Evaluator:
    """Evaluates the source of a tree as if FlashInfer `version` were installed.

    `pattern` is another release's evaluator, whose answers are taken over where the releases do not differ.
    """

    def __init__(self, tree: SourceTree, releases: Releases, version: str, pattern: Evaluator | None = None) -> None:
        self.tree = tree
        self.releases = releases
        self.version = version
        self.pattern = pattern
        self.memory: dict[str, dict[Any, Any]] = {}
        #: Whether something has been asked that releases answer differently, since somebody set it to False.
        self.varies = False
        self._calls: dict[SourceFile, dict[str, list[ast.Call]]] = {}
        self._depth = 0
        self._importing: set[ast.AST] = set()

    def _ask(self, question: str, *about: Any) -> Any:
        """A question about the release: a method of `Releases`."""
        if not self.varies and self.pattern is None:
            self.varies = self.releases.vary(question, *about)
        return getattr(self.releases, question)(self.version, *about)

    # Expressions

    def values(self, node: ast.expr, file: SourceFile, env: Environment = _NOTHING) -> Values:
        """What `node` can stand for; () where nothing is known of it."""
        return self._evaluated(node, file, env) if env else self._alone(node, file)

    @once(meanwhile=())
    def _alone(self, node: ast.expr, file: SourceFile) -> Values:
        return self._evaluated(node, file, _NOTHING)

    def truth(self, node: ast.expr, file: SourceFile, env: Environment = _NOTHING) -> frozenset[bool]:
        return truths(self.values(node, file, env))

    def _evaluated(self, node: ast.expr, file: SourceFile, env: Environment) -> Values:
        method: Callable[..., Values] | None = getattr(self, f"on_{type(node).__name__.lower()}", None)
        return tuple(dict.fromkeys(method(node, file, env))) if method is not None else (UNKNOWN,)

    def on_constant(self, node: ast.Constant, file: SourceFile, env: Environment) -> Values:
        return (Literal(node.value),)

    def _written(self, node: Any, file: SourceFile, env: Environment) -> Values:
        return (Written(node, file),)

    on_list = on_tuple = on_set = on_dict = _written

    def on_name(self, node: ast.Name, file: SourceFile, env: Environment) -> Values:
        if node.id in env:
            return env[node.id]
        if node.id not in file.concern.names and node.id not in ("self", "cls") and not self._is_plain(node.id, file):
            return (UNKNOWN,)
        where = file.syntax.where.get(node)
        if where is None:
            return (UNKNOWN,)
        scope: Scope | None = where.scope
        while scope is not None:
            if node.id in scope.bindings and (scope is where.scope or not scope.is_class):
                return self._bound(scope.bindings[node.id], file, where, node.lineno if scope is where.scope else 0)
            scope = scope.parent
        return self._starred(node.id, file)

    def _starred(self, name: str, file: SourceFile) -> Values:
        """A name that a ``from … import *`` may have brought."""
        for binding in file.syntax.scope.bindings.get("*", ()):
            values = self._imported(binding.module, name, file)
            if values and not isinstance(values[0], Missing) and values != (UNKNOWN,):
                return values
        return (UNKNOWN,)

    def _bound(self, bindings: list[Binding], file: SourceFile, at: Where, line: int) -> Values:
        """The values of the bindings that can be in force at a place: the later ones hide the earlier."""
        before = [binding for binding in bindings if not line or binding.line <= line] or bindings
        found: list[Value] = []
        for binding in reversed(before):
            live = self.reached(binding.where, file, at)
            if live is False:
                continue
            found += self.binding(binding, file)
            if live is True:
                break
        return tuple(found)

    def binding(self, binding: Binding, file: SourceFile) -> Values:
        node = binding.node
        if binding.kind == "import":
            return self._module(binding.module, file)
        if binding.kind == "from":
            return self._imported(binding.module, str(binding.detail), file)
        if binding.kind == "value" and isinstance(node, ast.expr):
            return self.values(node, file)
        if binding.kind == "annotated" and isinstance(node, ast.AnnAssign):
            values = self.values(node.value, file) if node.value is not None else ()
            known = [value for value in values if value != UNKNOWN and value != Literal(None)]
            return tuple(known) or self._annotation(node.annotation, file) or values
        if binding.kind == "item" and isinstance(node, ast.expr) and isinstance(binding.detail, tuple):
            return self._items((*self.values(node, file), *self._appended(node, file)), binding.detail)
        if binding.kind == "define":
            return (Own(node, file),)
        if binding.kind == "parameter" and isinstance(node, ast.arg):
            return self._parameter(node, binding.where.scope, file)
        return (UNKNOWN,)

    def _appended(self, node: ast.expr, file: SourceFile) -> Values:
        """What the file appends to a list of this name, as one list."""
        name = tail(node)
        added = [
            call.args[0]
            for call in self._calls_of(file).get("append", ())
            if call.args and isinstance(call.func, ast.Attribute) and name and tail(call.func.value) == name
        ]
        return (Written(ast.List(added[:_LONGEST], ast.Load()), file),) if added else ()

    def _calls_of(self, file: SourceFile) -> dict[str, list[ast.Call]]:
        if file not in self._calls:
            self._calls[file] = calls_of(file)
        return self._calls[file]

    def on_listcomp(self, node: ast.ListComp, file: SourceFile, env: Environment) -> Values:
        return (Written(ast.List([node.elt], ast.Load()), file),)

    def _items(self, values: Values, path: tuple[int, ...]) -> Values:
        """The elements at `path` of what is unpacked or iterated; -1 stands for every element."""
        for index in path:
            inner: list[Value] = []
            for value in values:
                if not isinstance(value, Written) or isinstance(value.node, ast.Dict):
                    inner.append(UNKNOWN)
                    continue
                elements = value.node.elts
                chosen = elements[:_LONGEST] if index < 0 else elements[index : index + 1]
                inner += [one for element in chosen for one in self.values(element, value.file)]
            values = tuple(dict.fromkeys(inner))
        return values

    def _annotation(self, node: ast.expr | None, file: SourceFile) -> Values:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition("[")[0].rpartition(".")[2].strip()
            for value in self._bound(file.syntax.scope.bindings.get(name, []), file, Where(file.syntax.scope), 0):
                if isinstance(value, Thing):
                    return (self._ask("called", value.dotted),)
            return ()
        if isinstance(node, ast.BinOp):
            return self._annotation(node.left, file) or self._annotation(node.right, file)
        if isinstance(node, ast.Subscript):
            return self._annotation(node.slice, file) if tail(node.value) in ("Optional", "Union") else ()
        if isinstance(node, (ast.Name, ast.Attribute)):
            found = [self._instance(value) for value in self.values(node, file)]
            return tuple(value for value in found if value != UNKNOWN)
        return ()

    def _instance(self, value: Value) -> Value:
        if isinstance(value, Thing):
            called = self._ask("called", value.dotted)
            return called if isinstance(called, Instance) and called.of == value.dotted else UNKNOWN
        if isinstance(value, Own) and isinstance(value.node, ast.ClassDef):
            return OwnInstance(value.node, value.file)
        return UNKNOWN

    def _parameter(self, node: ast.arg, scope: Scope, file: SourceFile) -> Values:
        """What a parameter can hold: of its annotation, ``self``, or what the file's own calls pass."""
        annotated = self._annotation(node.annotation, file)
        if annotated:
            return annotated
        function = scope.node
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return (UNKNOWN,)
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        is_method = scope.parent is not None and scope.parent.is_class
        if is_method and names and names[0] == node.arg and isinstance(scope.parent.node, ast.ClassDef):  # type: ignore[union-attr]
            return (OwnInstance(scope.parent.node, file),)  # type: ignore[union-attr]
        position = names.index(node.arg) if node.arg in names else None
        found: list[Value] = []
        calls = self._calls_of(file)
        for call in calls.get(function.name, ())[:_DEEPEST]:
            shift = int(is_method and isinstance(call.func, ast.Attribute))
            found += self._passed(call.args, call, node.arg, position, shift, file)
        for call in (*calls.get("partial", ()), *calls.get("MethodType", ())):
            if call.args and tail(call.args[0]) == function.name:
                found += self._passed(call.args[1:], call, node.arg, position, 0, file)
        return tuple(dict.fromkeys(value for value in found if value != UNKNOWN)) or (UNKNOWN,)

    def _passed(
        self,
        arguments: list[ast.expr],
        call: ast.Call,
        name: str,
        position: int | None,
        shift: int,
        file: SourceFile,
    ) -> Values:
        for keyword in call.keywords:
            if keyword.arg == name:
                return self.values(keyword.value, file)
        if position is None or not 0 <= position - shift < len(arguments):
            return ()
        before = arguments[: position - shift + 1]
        return () if any(isinstance(one, ast.Starred) for one in before) else self.values(before[-1], file)

    # Modules and attributes

    def _module(self, module: str, file: SourceFile) -> Values:
        if is_flashinfer(module):
            return (self._ask("thing", module, "ImportError"),)
        own = self.tree.find(absolute(module, file.module, file.is_package))
        return (OwnModule(own),) if own is not None else (UNKNOWN,)

    def _imported(self, module: str, name: str, file: SourceFile) -> Values:
        if is_flashinfer(module):
            return (self._ask("thing", f"{module}.{name}", "ImportError"),)
        target = absolute(module, file.module, file.is_package)
        own = self.tree.find(target)
        if own is not None:
            values = self.of_module(own, name)
            if values:
                return values
        submodule = self.tree.find(f"{target}.{name}" if target else name)
        return (OwnModule(submodule),) if submodule is not None else (UNKNOWN,)

    def of_module(self, file: SourceFile, name: str) -> Values:
        """What a module's global name stands for."""
        scope = file.syntax.scope
        if name in scope.bindings:
            key = scope.bindings[name][0].node
            if key in self._importing:
                self.varies = True  # an answer that depends on who asks
                return ()
            self._importing.add(key)
            try:
                return self._bound(scope.bindings[name], file, Where(scope), 0)
            finally:
                self._importing.discard(key)
        values = self._starred(name, file) if "*" in scope.bindings else ()
        return () if values == (UNKNOWN,) else values

    @staticmethod
    def _is_plain(name: str, file: SourceFile) -> bool:
        """A table or text of the module, which tells nothing of FlashInfer by itself."""
        bindings = file.syntax.scope.bindings.get(name, ())
        return any(isinstance(binding.node, (ast.Constant, ast.List, ast.Tuple)) for binding in bindings)

    def on_attribute(self, node: ast.Attribute, file: SourceFile, env: Environment) -> Values:
        found: list[Value] = []
        for value in self.values(node.value, file, env):
            if value == UNKNOWN and node.attr in RAW_MODULES:
                value = Instance("")  # only FlashInfer's wrappers have it
            found += self.attribute(value, node.attr, file)
        return tuple(found)

    def attribute(self, value: Value, name: str, file: SourceFile) -> Values:
        if isinstance(value, Thing):
            return (self._ask("thing", f"{value.dotted}.{name}"),)
        if isinstance(value, Missing):
            return (Missing(f"{value.dotted}.{name}", value.error),)
        if isinstance(value, Instance):
            return (self._ask("member", value.of, name),)
        if isinstance(value, RawModule) and not value.function:
            return (RawModule(value.of, name),)
        if isinstance(value, OwnModule):
            return self.of_module(value.file, name) or (UNKNOWN,)
        if isinstance(value, OwnInstance):
            return self._own_attribute(value.node, value.file, name, bound=True)
        if isinstance(value, Own) and isinstance(value.node, ast.ClassDef):
            return self._own_attribute(value.node, value.file, name, bound=False)
        if isinstance(value, Literal):
            return self._literal_attribute(value.value, name)
        if isinstance(value, Parameters) and name == "parameters":
            return (value,)
        if isinstance(value, Partial) and name == "func":
            return (value.function,)
        if isinstance(value, Method) and name in ("__func__", "__wrapped__"):
            return (value,)
        return (UNKNOWN,)

    @staticmethod
    def _literal_attribute(value: Any, name: str) -> Values:
        if isinstance(value, Version) and not name.startswith("_") and hasattr(value, name):
            return (Literal(getattr(value, name)),)
        return (UNKNOWN,)

    def _own_attribute(self, node: ast.ClassDef, file: SourceFile, name: str, *, bound: bool) -> Values:
        scope = file.syntax.scopes.get(node)
        if scope is None or node in self._importing:
            self.varies = True
            return (UNKNOWN,)
        bindings = [*scope.bindings.get(name, ()), *scope.attributes.get(name, ())]
        self._importing.add(node)
        try:
            found: list[Value] = []
            for binding in bindings:
                if self.reached(binding.where, file, Where(scope)) is not False:
                    found += self.binding(binding, file)
            if bindings:
                return tuple(Own(one.node, one.file, bound) if isinstance(one, Own) else one for one in found)
            for base in node.bases:
                for value in self.values(base, file):
                    inherited = self.attribute(self._instance(value) if bound else value, name, file)
                    if inherited != (UNKNOWN,):
                        return inherited
        finally:
            self._importing.discard(node)
        return (UNKNOWN,)

    def on_subscript(self, node: ast.Subscript, file: SourceFile, env: Environment) -> Values:
        found: list[Value] = []
        key = self._key(node.slice, file, env)
        for value in self.values(node.value, file, env):
            if isinstance(value, Written):
                found += self._element(value, key)
            elif isinstance(value, Literal) and isinstance(value.value, (str, tuple)):
                try:
                    found.append(Literal(value.value[key]))
                except (TypeError, IndexError):
                    found.append(UNKNOWN)
            else:
                found.append(UNKNOWN)
        return tuple(found)

    def _key(self, node: ast.expr | None, file: SourceFile, env: Environment) -> Any:
        """A subscript's index, key or slice; None where it is not known, which no text or tuple takes."""
        if isinstance(node, ast.Slice):
            bounds = [self.values(part, file, env) if part else (Literal(None),) for part in (node.lower, node.upper)]
            known = [one[0].value for one in bounds if len(one) == 1 and isinstance(one[0], Literal)]
            return slice(*known) if len(known) == len(bounds) else None
        keys = [value.value for value in self.values(node, file, env) if isinstance(value, Literal)] if node else []
        return keys[0] if keys else None

    def _element(self, value: Written, key: Any) -> Values:
        node = value.node
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            chosen = [element for one, element in pairs if isinstance(one, ast.Constant) and one.value == key]
            return tuple(found for element in chosen or node.values for found in self.values(element, value.file))
        elements = node.elts[key : key + 1] if isinstance(key, int) and key >= 0 else node.elts
        return tuple(found for element in elements[:_LONGEST] for found in self.values(element, value.file))

    # Operators

    def on_ifexp(self, node: ast.IfExp, file: SourceFile, env: Environment) -> Values:
        truth = self.truth(node.test, file, env)
        found: list[Value] = []
        if True in truth:
            found += self.values(node.body, file, env)
        if False in truth:
            found += self.values(node.orelse, file, env)
        return tuple(found)

    def on_namedexpr(self, node: ast.NamedExpr, file: SourceFile, env: Environment) -> Values:
        return self.values(node.value, file, env)

    def on_await(self, node: ast.Await, file: SourceFile, env: Environment) -> Values:
        return self.values(node.value, file, env)

    def on_boolop(self, node: ast.BoolOp, file: SourceFile, env: Environment) -> Values:
        stops = isinstance(node.op, ast.Or)
        found: list[Value] = []
        for value in node.values:
            values = self.values(value, file, env)
            truth = truths(values)
            if value is node.values[-1] or truth == {stops}:
                found += values
                break
            if stops in truth:
                # Of an unknown left side remains only that it is true, or false.
                found += [one for one in values if stops in truths((one,)) and one != UNKNOWN]
                found += [Literal(stops)] if UNKNOWN in values or not values else []
            if not truth:
                break
        return tuple(found)

    def on_unaryop(self, node: ast.UnaryOp, file: SourceFile, env: Environment) -> Values:
        if isinstance(node.op, ast.Not):
            return tuple(Literal(not truth) for truth in sorted(self.truth(node.operand, file, env)))
        return (UNKNOWN,)

    def on_compare(self, node: ast.Compare, file: SourceFile, env: Environment) -> Values:
        if len(node.ops) != 1:
            return (UNKNOWN,)
        found: list[Value] = []
        for left in self.values(node.left, file, env) or (UNKNOWN,):
            for right in self.values(node.comparators[0], file, env) or (UNKNOWN,):
                if not isinstance(left, Missing) and not isinstance(right, Missing):
                    found.append(self._compared(node.ops[0], left, right))
        return tuple(found)

    def _compared(self, operator: ast.cmpop, left: Value, right: Value) -> Value:
        if isinstance(operator, (ast.Is, ast.IsNot)) and Literal(None) in (left, right):
            if UNKNOWN in (left, right):
                return UNKNOWN
            return Literal((left == right) is isinstance(operator, ast.Is))
        if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(left, Literal):
            inside = isinstance(operator, ast.In)
            if isinstance(right, Parameters):
                return Literal((left.value in right.names) is inside)
            if isinstance(right, Written) and not isinstance(right.node, ast.Dict):
                elements = [one for element in right.node.elts for one in self.values(element, right.file)]
                if all(isinstance(one, Literal) for one in elements):
                    return Literal((left in elements) is inside)
        if isinstance(left, Literal) and isinstance(right, Literal):
            compare = _COMPARISONS.get(type(operator))
            try:
                return Literal(bool(compare(left.value, right.value))) if compare else UNKNOWN
            except TypeError:
                return UNKNOWN
        return UNKNOWN

    # Calls

    def on_call(self, node: ast.Call, file: SourceFile, env: Environment) -> Values:
        name = tail(node.func)
        special = getattr(self, f"_call_{name}", None)
        if special is not None and (isinstance(node.func, ast.Name) or name not in ("all", "any")):
            values: Values | None = special(node, file, env)
            if values is not None:
                return values
        found: list[Value] = []
        for function in self.values(node.func, file, env):
            found += self.called(function, node, file, env)
        if set(found) <= {UNKNOWN} and isinstance(node.func, ast.Attribute):
            found = list(self._of_the_only_method(node.func.attr)) or found
        named = self._named(node, file, env)
        if named and not any(isinstance(one, (Thing, Instance, Missing, Literal)) for one in found):
            return named
        return tuple(found)

    def _of_the_only_method(self, name: str) -> Values:
        """What a method returns whose name only one audited class has, by its annotation."""
        methods = self.tree.methods().get(name, ())
        if len(methods) != 1:
            return ()
        file, method = methods[0]
        return self._annotation(method.returns, file) if method.returns is not None else ()

    def called(self, function: Value, node: ast.Call, file: SourceFile, env: Environment = _NOTHING) -> Values:
        if isinstance(function, Thing):
            return (self._ask("called", function.dotted),)
        if isinstance(function, Missing):
            return (function,)
        if isinstance(function, Partial):
            return self.called(function.function, node, file, env)
        if isinstance(function, Own):
            if isinstance(function.node, ast.ClassDef):
                return (OwnInstance(function.node, function.file),)
            if isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return self.run(function, node, file, env)
        return (UNKNOWN,)

    def _named(self, node: ast.Call, file: SourceFile, env: Environment) -> Values:
        """``helper("flashinfer.module", "name")``: a lazy import, whatever the helper is."""
        texts = [value.value if isinstance(value, ast.Constant) else None for value in node.args[:2]]
        if not texts or not isinstance(texts[0], str) or not is_module_name(texts[0]):
            return ()
        if not self.releases.known(texts[0]):
            return ()
        if len(texts) > 1 and isinstance(texts[1], str) and texts[1].isidentifier():
            return (self._ask("thing", f"{texts[0]}.{texts[1]}"),)
        return ()

    def _call_import_module(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        found: list[Value] = []
        for value in self.values(node.args[0], file, env) if node.args else ():
            if not isinstance(value, Literal) or not isinstance(value.value, str):
                return (UNKNOWN,)
            found += self._module(value.value, file)
        return tuple(found)

    _call___import__ = _call_import_module

    def _call_find_spec(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        found: list[Value] = []
        for value in self._call_import_module(node, file, env) or ():
            if isinstance(value, Missing):
                # find_spec imports the parents: of a missing package it raises.
                parent = value.dotted.rpartition(".")[0]
                there = self._ask("has", parent)
                found.append(Literal(None) if there else value)
            else:
                found.append(value)
        return tuple(found)

    def _looked_up(self, node: ast.Call, file: SourceFile, env: Environment) -> list[tuple[Value, Values]] | None:
        """What ``getattr`` and ``hasattr`` ask and what they find there; None where the name is not known."""
        found = []
        for name in self.values(node.args[1], file, env):
            if not isinstance(name, Literal) or not isinstance(name.value, str):
                return None
            for holder in self.values(node.args[0], file, env):
                found.append((holder, self.attribute(holder, name.value, file)))
        return found

    def _call_getattr(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        if len(node.args) < 2:
            return None
        looked_up = self._looked_up(node, file, env)
        if looked_up is None:
            return (UNKNOWN,)
        found: list[Value] = []
        for holder, values in looked_up:
            for value in values:
                if isinstance(value, Missing) and len(node.args) > 2 and not isinstance(holder, Missing):
                    found += self.values(node.args[2], file, env)
                else:
                    found.append(value)
        return tuple(found)

    def _call_hasattr(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        if len(node.args) < 2:
            return None
        looked_up = self._looked_up(node, file, env)
        if looked_up is None:
            return (UNKNOWN,)
        found: list[Value] = []
        for holder, values in looked_up:
            if isinstance(holder, Missing):
                found.append(holder)
            elif holder == Literal(None):
                found.append(Literal(False))
            elif isinstance(holder, (Thing, Instance)) and values != (UNKNOWN,):
                found.append(Literal(not any(isinstance(value, Missing) for value in values)))
            else:
                found.append(UNKNOWN)
        return tuple(found)

    def _call_callable(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        found: list[Value] = []
        for value in self.values(node.args[0], file, env) if node.args else ():
            if isinstance(value, (Thing, Method, Own, Partial)):
                found.append(Literal(True))
            else:
                found.append(Literal(False) if isinstance(value, Literal) else UNKNOWN)
        return tuple(found)

    def _call_bool(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        return tuple(Literal(one) for one in sorted(self.truth(node.args[0], file, env))) if node.args else None

    def _call_all(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        return self._quantified(node, file, env, stops=False)

    def _call_any(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        return self._quantified(node, file, env, stops=True)

    def _quantified(self, node: ast.Call, file: SourceFile, env: Environment, *, stops: bool) -> Values | None:
        """``all`` and ``any`` over a written table: each element on its own."""
        if not node.args or not isinstance(node.args[0], (ast.GeneratorExp, ast.ListComp)):
            return None
        comprehension = node.args[0]
        generator = comprehension.generators[0]
        tables = self.values(generator.iter, file, env)
        if len(comprehension.generators) > 1 or generator.ifs or len(tables) != 1 or not isinstance(tables[0], Written):
            return None
        truth: list[frozenset[bool]] = []
        for inner in self._unrolled(tables[0], generator.target, env):
            truth.append(self.truth(comprehension.elt, file, inner))
        if any(one == {stops} for one in truth):
            return (Literal(stops),)
        return (Literal(not stops),) if all(one == {not stops} for one in truth) else (UNKNOWN,)

    def _unrolled(self, table: Written, target: ast.expr, env: Environment) -> Iterator[Environment]:
        elements = table.node.keys if isinstance(table.node, ast.Dict) else table.node.elts
        for element in elements[:_LONGEST]:
            if isinstance(element, ast.expr):
                yield {**env, **self._targets(target, self.values(element, table.file))}

    def _targets(self, target: ast.expr, values: Values) -> dict[str, Values]:
        if isinstance(target, ast.Name):
            return {target.id: values}
        found: dict[str, Values] = {}
        if isinstance(target, (ast.Tuple, ast.List)):
            for index, inner in enumerate(target.elts):
                elements: list[Value] = []
                for value in values:
                    elements += self._element(value, index) if isinstance(value, Written) else (UNKNOWN,)
                found |= self._targets(inner, tuple(elements))
        return found

    def _call_signature(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        found: list[Value] = []
        for value in self.values(node.args[0], file, env) if node.args else ():
            if isinstance(value, Missing):
                found.append(value)
                continue
            names = self._ask("parameters", value)
            of = f"{value.of}.{value.name}" if isinstance(value, Method) else getattr(value, "dotted", "")
            found.append(Parameters(names, of) if names is not None else UNKNOWN)
        return tuple(found)

    def _call_partial(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        functions = self.values(node.args[0], file, env) if node.args else ()
        return tuple(one if one == UNKNOWN else Partial(one, node, file) for one in functions)

    def _call_MethodType(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        return self.values(node.args[0], file, env) if node.args else None

    def _call_cast(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        return self.values(node.args[1], file, env) if len(node.args) == 2 else None

    def _call_version(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        """``importlib.metadata.version("flashinfer-python")``."""
        names = self.values(node.args[0], file, env) if node.args else ()
        if any(isinstance(one, Literal) and one.value in _DISTRIBUTIONS for one in names):
            self.varies = True
            return (Literal(self.version),)
        return None

    def _call_Version(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        found: list[Value] = []
        for value in self.values(node.args[0], file, env) if node.args else ():
            try:
                found.append(Literal(Version(value.value)) if isinstance(value, Literal) else UNKNOWN)
            except (InvalidVersion, TypeError):
                found.append(UNKNOWN)
        return tuple(found)

    _call_parse = _call_Version

    def _call_split(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        holder = self.values(node.func.value, file, env) if isinstance(node.func, ast.Attribute) else ()
        given = [self.values(one, file, env) for one in node.args if not isinstance(one, ast.Starred)]
        arguments = [one[0].value for one in given if len(one) == 1 and isinstance(one[0], Literal)]
        if len(holder) == 1 and isinstance(holder[0], Literal) and isinstance(holder[0].value, str) and arguments:
            try:
                return (Literal(tuple(holder[0].value.split(*arguments))),)
            except TypeError:
                return None
        return None

    def _call_startswith(self, node: ast.Call, file: SourceFile, env: Environment) -> Values | None:
        holder = self.values(node.func.value, file, env) if isinstance(node.func, ast.Attribute) else ()
        given = self.values(node.args[0], file, env) if node.args else ()
        texts = [one.value for one in (*holder, *given) if isinstance(one, Literal) and isinstance(one.value, str)]
        return (Literal(texts[0].startswith(texts[1])),) if len(texts) == len(holder) + len(given) == 2 else None

    # Functions of the source, followed

    def run(self, function: Own, call: ast.Call | None, file: SourceFile, env: Environment = _NOTHING) -> Values:
        """What a function of the source can return, given what the call passes."""
        definition = function.node
        if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)) or self._depth >= _DEEPEST:
            return (UNKNOWN,)
        if not function.file.concern.defines(definition) and not _imports(definition):
            return (UNKNOWN,)
        function.file.concern.read(definition)
        if call is None or not (call.args or call.keywords):
            return self._returned((definition, function.bound), function.file)
        return self._ran(function, call, file, env)

    @once(meanwhile=(UNKNOWN,))
    def _returned(self, function: tuple[ast.AST, bool], file: SourceFile) -> Values:
        return self._ran(Own(function[0], file, function[1]), None, file, _NOTHING)

    def _ran(self, function: Own, call: ast.Call | None, file: SourceFile, env: Environment) -> Values:
        definition = function.node
        assert isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef))
        inner: dict[str, Values] = {}
        parameters = [*definition.args.posonlyargs, *definition.args.args]
        defaults = definition.args.defaults
        for parameter, default in zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True):
            inner[parameter.arg] = self.values(default, function.file)
        if call is not None:
            shift = int(function.bound)
            for parameter, argument in zip(parameters[shift:], call.args, strict=False):
                if isinstance(argument, ast.Starred):
                    break
                inner[parameter.arg] = self.values(argument, file, env)
            for keyword in call.keywords:
                if keyword.arg:
                    inner[keyword.arg] = self.values(keyword.value, file, env)
        self._depth += 1
        try:
            returned, falls = _Run(self, function.file).block(definition.body, inner)
        except Raised as raised:
            return (raised.missing,)
        finally:
            self._depth -= 1
        return tuple(dict.fromkeys((*returned, Literal(None)) if falls else returned))

    # Guards

    def reached(self, where: Where, file: SourceFile, at: Where | None = None) -> bool | None:
        """Whether a place is reached (None: perhaps), as seen from a place whose own guards hold."""
        held = frozenset(at.guards) if at is not None else frozenset()
        certain: bool | None = True
        for guard in where.guards:
            if guard in held:
                continue
            live = self.holds(guard, file)
            if live is False:
                return False
            certain = certain and live
        return certain

    @once(meanwhile=None)
    def holds(self, guard: Guard, file: SourceFile) -> bool | None:
        if isinstance(guard, Branch):
            truth = self.truth(guard.test, file)
            return guard.taken in truth if len(truth) == 1 else None if truth else False
        failed = self.failure(guard.statement, file)
        if isinstance(guard.part, ast.ExceptHandler):
            if failed is not None:
                return failed[2] is guard.part
            return False if self._uses(guard.statement, file) else None
        if failed is None:
            return True
        # Of a body that fails the beginning is reached: callers who care compare the lines.
        return guard.part != "else" and None

    @once(meanwhile=None)
    def failure(self, statement: ast.Try, file: SourceFile) -> tuple[ast.AST, Missing, ast.ExceptHandler] | None:
        """The first use in a try statement's body that raises what one of its handlers catches."""
        for node, missing in self._uses(statement, file):
            handler = catching(statement, missing.error) if missing is not None else None
            where = file.syntax.where.get(node)
            if missing is not None and handler is not None and where is not None:
                own = [guard for guard in where.guards if isinstance(guard, Attempt) and guard.statement is statement]
                at = Where(where.scope, where.guards[: where.guards.index(own[0]) + 1]) if own else where
                if self.reached(where, file, at) is not False:
                    return node, missing, handler
        return None

    @once(meanwhile=())
    def _uses(self, statement: ast.Try, file: SourceFile) -> list[tuple[ast.AST, Missing | None]]:
        """The uses of FlashInfer in a try statement's body, and what is missing for each."""
        found: list[tuple[ast.AST, Missing | None]] = []
        for node in _body_nodes(statement.body):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                missing = self.import_failure(node, file)
                if not isinstance(missing, bool):
                    found.append((node, missing))
            elif _is_lookup(node):
                assert isinstance(node, ast.expr)
                values = self.values(node, file)
                if values and all(isinstance(value, Missing) for value in values):
                    found.append((node, values[0]))  # type: ignore[arg-type]
                elif any(isinstance(value, Thing) for value in values):
                    found.append((node, None))
        return found

    def import_failure(self, node: ast.Import | ast.ImportFrom, file: SourceFile) -> Missing | bool | None:
        """What an import statement misses; None if nothing, False if it is none of FlashInfer's."""
        concerned = False
        for alias in node.names:
            if isinstance(node, ast.Import):
                names = [alias.name]
                module = alias.name
            else:
                module = "." * node.level + (node.module or "")
                names = [module, *([f"{module}.{alias.name}"] if alias.name != "*" else [])]
            if is_flashinfer(module):
                concerned = True
                for name in names:
                    value = self._ask("thing", name, "ImportError")
                    if isinstance(value, Missing):
                        return value
            else:
                own = self.tree.find(absolute(module, file.module, file.is_package))
                if own is not None and own is not file:
                    missing = self.module_failure(own)
                    if missing is not None:
                        return missing
                    values = self._imported(module, alias.name, file) if isinstance(node, ast.ImportFrom) else ()
                    if any(isinstance(value, (Thing, Missing)) for value in values):
                        concerned = True
        return None if concerned else False

    def module_failure(self, file: SourceFile) -> Missing | None:
        """What importing an audited module raises on this release."""
        return None if file.syntax.tree in self._importing else self._module_failure(file.syntax.tree, file)

    @once(meanwhile=None)
    def _module_failure(self, module: ast.Module, file: SourceFile) -> Missing | None:
        for statement in module.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                missing = self.import_failure(statement, file)
                if isinstance(missing, Missing) and self.reached(file.syntax.where[statement], file) is not False:
                    return missing
        return None


class _Run:
    """A function's body, statement by statement; conditions that are not known go both ways."""

    def __init__(self, evaluator: Evaluator, file: SourceFile) -> None:
        self.evaluator = evaluator
        self.file = file
        self.steps = 0

    def block(self, statements: list[ast.stmt], env: dict[str, Values]) -> tuple[list[Value], bool]:
        """What the block can return, and whether it can be passed through."""
        returned: list[Value] = []
        for statement in statements:
            self.steps += 1
            if self.steps > 400:
                return [UNKNOWN], False
            values, falls = self.statement(statement, env)
            returned += values
            if not falls:
                return returned, False
        return returned, True

    def statement(self, node: ast.stmt, env: dict[str, Values]) -> tuple[list[Value], bool]:
        evaluate = self.evaluator
        returned: list[Value] = []
        if isinstance(node, ast.Return):
            if node.value is None:
                return [Literal(None)], False
            return list(self.raising(evaluate.values(node.value, self.file, env))) or [UNKNOWN], False
        if isinstance(node, ast.Raise):
            return [], False
        if isinstance(node, ast.If):
            truth = truths(self.raising(evaluate.values(node.test, self.file, env)))
            falls = False
            for taken, body in ((True, node.body), (False, node.orelse)):
                if taken in truth:
                    inner = env if len(truth) == 1 else dict(env)
                    values, passes = self.block(body, inner)
                    returned += values
                    falls = falls or passes
                    if len(truth) > 1:
                        for name, found in inner.items():
                            if env.get(name) != found:
                                env[name] = tuple(dict.fromkeys((*env.get(name, ()), *found)))
            return returned, falls
        if isinstance(node, (ast.For, ast.AsyncFor)):
            tables = evaluate.values(node.iter, self.file, env)
            if len(tables) == 1 and isinstance(tables[0], Written):
                for one in evaluate._unrolled(tables[0], node.target, env):
                    values, falls = self.block(node.body, dict(one))
                    returned += values
                    if not falls and not _loops(node.body):
                        return returned, False
                return returned, True
            values, _ = self.block(node.body, dict(env))
            return values, True
        if isinstance(node, ast.Try):
            try:
                returned, falls = self.block([*node.body, *node.orelse], env)
            except Raised as raised:
                handler = catching(node, raised.missing.error)
                if handler is None:
                    raise
                returned, falls = self.block(handler.body, env)
            if falls:
                values, falls = self.block(node.finalbody, env)
                returned += values
            return returned, falls
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return self.block(node.body, env)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            missing = evaluate.import_failure(node, self.file)
            if isinstance(missing, Missing):
                raise Raised(missing)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            env[node.targets[0].id] = self.raising(evaluate.values(node.value, self.file, env))
        elif isinstance(node, ast.Expr):
            self.raising(evaluate.values(node.value, self.file, env))
        return [], not isinstance(node, (ast.Continue, ast.Break))

    @staticmethod
    def raising(values: Values) -> Values:
        """`values`, unless all are of names that the release lacks."""
        if values and all(isinstance(value, Missing) for value in values):
            raise Raised(values[0])  # type: ignore[arg-type]
        return tuple(value for value in values if not isinstance(value, Missing))


def catching(statement: ast.Try, error: str) -> ast.ExceptHandler | None:
    """The handler of a try statement that catches an error."""
    catches = _CATCHES.get(error, ("Exception", "BaseException"))
    for handler in statement.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or tail(kind) in catches for kind in kinds):
            return handler
    return None


def _is_lookup(node: ast.AST) -> bool:
    """Whether a node reads a name that may be missing: an attribute, or a function that is given the name."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.ctx, ast.Load)
    lookups = ("import_module", "__import__", "find_spec", "getattr")
    return isinstance(node, ast.Call) and tail(node.func) in lookups


def is_module_name(text: str) -> bool:
    return is_flashinfer(text) and all(map(str.isidentifier, text.split(".")))


def _imports(node: ast.AST) -> bool:
    """Whether a function imports what it is given the name of."""
    return any(
        isinstance(inner, ast.Call) and tail(inner.func) in ("import_module", "__import__", "find_spec")
        for inner in ast.walk(node)
    )


def _loops(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, (ast.Continue, ast.Break)) for statement in body for node in ast.walk(statement))


def _body_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of a block in source order, without those of functions defined in it."""
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending.extend(reversed(list(ast.iter_child_nodes(node))))


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: lambda left, right: left == right,
    ast.NotEq: lambda left, right: left != right,
    ast.Lt: lambda left, right: left < right,
    ast.LtE: lambda left, right: left <= right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
}

"""A call's arguments, as far as they are written, bound to what a release's function takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..surfaces.model import Kind, Parameter
from .evaluate import Evaluator
from .tree import SourceFile
from .values import Partial, Value


@dataclass
class Arguments:
    """What a call passes: `positional` arguments at least, the `keywords`, and whether there may be more of either."""

    positional: int = 0
    keywords: list[str] = field(default_factory=list)
    #: Keywords that only some paths of the source pass.
    maybe: list[str] = field(default_factory=list)
    more_positional: bool = False
    more_keywords: bool = False


def arguments_of(call: ast.Call, value: Value, file: SourceFile, evaluator: Evaluator) -> Arguments:
    """The arguments of a call, those of the `partial` that it calls included."""
    found = Arguments()
    if isinstance(value, Partial):
        inner = arguments_of(value.call, value.function, value.file, evaluator)
        found.positional, found.keywords = max(inner.positional - 1, 0), list(inner.keywords)
        found.more_positional, found.more_keywords = inner.more_positional, inner.more_keywords
    for argument in call.args:
        if isinstance(argument, ast.Starred):
            length = _length(argument.value, file)
            if length is None:
                found.more_positional = True
            else:
                found.positional += length
        else:
            found.positional += 1
    for keyword in call.keywords:
        if keyword.arg is not None:
            found.keywords.append(keyword.arg)
        else:
            _spread(keyword.value, file, evaluator, found)
    return found


def _length(node: ast.expr, file: SourceFile) -> int | None:
    """The length of a list that is written once and not changed afterwards."""
    where = file.syntax.where.get(node)
    if isinstance(node, ast.Name) and where is not None:
        bindings = where.scope.bindings.get(node.id, ())
        written = [binding.node for binding in bindings if binding.kind == "value"]
        if len(written) != len(bindings) or _is_changed(node, file):
            return None
    else:
        written = [node]
    lengths = {_elements(one) for one in written}
    return lengths.pop() if len(lengths) == 1 else None


def _elements(node: ast.AST) -> int | None:
    """The length of a list or tuple that is written out."""
    if not isinstance(node, (ast.List, ast.Tuple)) or any(isinstance(one, ast.Starred) for one in node.elts):
        return None
    return len(node.elts)


def _is_changed(node: ast.Name, file: SourceFile) -> bool:
    """Whether the list is appended to, extended or assigned into somewhere in its scope."""
    where = file.syntax.where[node]
    for other, place in file.syntax.nodes:
        if place.scope is not where.scope:
            continue
        if isinstance(other, ast.Call) and isinstance(other.func, ast.Attribute):
            held = other.func.value
            changes = other.func.attr in ("append", "extend", "insert", "pop", "remove", "clear")
            if isinstance(held, ast.Name) and held.id == node.id and changes:
                return True
    return any(binding.kind == "other" for binding in where.scope.bindings.get(node.id, ()))


def _spread(node: ast.expr, file: SourceFile, evaluator: Evaluator, found: Arguments) -> None:
    """The keywords of ``**mapping``, where the source writes it: literally, with ``dict(...)``, item by item."""
    if isinstance(node, ast.Dict):
        _literal(node, file, evaluator, found)
        return
    if isinstance(node, ast.Call) and _is_mapping(node):
        found.keywords += [keyword.arg for keyword in node.keywords if keyword.arg]
        found.more_keywords = found.more_keywords or any(keyword.arg is None for keyword in node.keywords)
        return
    if isinstance(node, ast.IfExp):
        inner = Arguments()
        _spread(node.body, file, evaluator, inner)
        _spread(node.orelse, file, evaluator, inner)
        found.maybe += [*inner.keywords, *inner.maybe]
        found.more_keywords = found.more_keywords or inner.more_keywords
        return
    where = file.syntax.where.get(node)
    if not isinstance(node, ast.Name) or where is None:
        found.more_keywords = True
        return
    bindings = where.scope.bindings.get(node.id, ())
    written = [
        one.node
        for one in bindings
        if one.kind in ("value", "annotated") and evaluator.reached(one.where, file, where) is not False
    ]
    written = [one.value if isinstance(one, ast.AnnAssign) and one.value else one for one in written]
    if not bindings or len(written) != len(bindings) or not all(map(_is_mapping, written)):
        found.more_keywords = True
    for one in written:
        if isinstance(one, (ast.Dict, ast.Call)) and _is_mapping(one):
            inner = Arguments()
            _spread(one, file, evaluator, inner)
            (found.keywords if len(written) == 1 else found.maybe).extend(inner.keywords)
            found.more_keywords = found.more_keywords or inner.more_keywords
    for other, place in file.syntax.nodes:
        if place.scope is where.scope and evaluator.reached(place, file, where) is not False:
            found.maybe += _items_set(other, node.id, found)


def _is_mapping(node: object) -> bool:
    return isinstance(node, ast.Dict) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args
    )


def _literal(node: ast.Dict, file: SourceFile, evaluator: Evaluator, found: Arguments) -> None:
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            _spread(value, file, evaluator, found)
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.keywords.append(key.value)
        else:
            found.more_keywords = True


def _items_set(node: ast.AST, name: str, found: Arguments) -> Iterator[str]:
    """``kw["x"] = …``, ``kw.update(x=…)`` and ``kw.setdefault("x", …)``."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == name:
                if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                    yield target.slice.value
                else:
                    found.more_keywords = True
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        held = node.func.value
        if not (isinstance(held, ast.Name) and held.id == name):
            return
        if node.func.attr == "update":
            yield from (keyword.arg for keyword in node.keywords if keyword.arg)
            for argument in node.args:
                if isinstance(argument, ast.Dict):
                    yield from (str(key.value) for key in argument.keys if isinstance(key, ast.Constant))
                else:
                    found.more_keywords = True
        elif node.func.attr == "setdefault" and node.args and isinstance(node.args[0], ast.Constant):
            yield str(node.args[0].value)


@dataclass
class Bound:
    """How a call fits a signature: what is wrong, and which parameter each argument reaches."""

    unknown: list[str] = field(default_factory=list)
    too_many: int | None = None
    twice: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    #: Parameters left at their default -> its text.
    defaults: dict[str, str] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        return not (self.unknown or self.too_many is not None or self.twice or self.missing)


def bind(arguments: Arguments, parameters: Sequence[Parameter], accepts: dict[str, str]) -> Bound:
    """Python's own binding, as far as the arguments are known."""
    found = Bound()
    positional = [one for one in parameters if one.positional]
    takes_any = any(one.kind is Kind.VAR_POSITIONAL for one in parameters)
    takes_keywords = any(one.kind is Kind.VAR_KEYWORD for one in parameters)
    if arguments.positional > len(positional) and not takes_any:
        found.too_many = len(positional)
    found.places = [one.name for one in positional[: arguments.positional]]
    by_name = {one.name for one in parameters if one.kind in (Kind.POSITIONAL_OR_KEYWORD, Kind.KEYWORD_ONLY)}
    for keyword in dict.fromkeys((*arguments.keywords, *arguments.maybe)):
        stands_for = accepts.get(keyword, keyword)
        if keyword in found.places:
            found.twice.append(keyword)
        elif keyword not in by_name and keyword not in accepts and stands_for not in by_name and not takes_keywords:
            found.unknown.append(keyword)
    given = {*found.places, *(accepts.get(keyword, keyword) for keyword in (*arguments.keywords, *arguments.maybe))}
    for one in parameters:
        if one.name in given or one.kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD):
            continue
        if one.required:
            may_be_passed = arguments.more_keywords or (arguments.more_positional and one.positional)
            if not may_be_passed:
                found.missing.append(one.name)
        elif one.default is not None and not arguments.more_keywords and not arguments.more_positional:
            found.defaults[one.name] = one.default
    return found

"""The adapters' tables as their source says them: importing them needs torch, reading them does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..adapters import RELEASES

_UNAVAILABLE = frozenset({"Gone", "Missing", "Refuse", "RefuseValues", "RefuseWhen"})


@dataclass(frozen=True)
class TableLine:
    """A line of a table: its kind, the keywords that it adds, and what it says to people."""

    key: str
    kind: str
    adds: tuple[str, ...]
    note: str
    since: str
    instead: str

    @property
    def outcome(self) -> str:
        return "unavailable" if self.kind in _UNAVAILABLE else "ignored" if self.kind == "Ignore" else "emulated"


@cache
def lines() -> tuple[TableLine, ...]:
    """The lines of all releases, the newest release's first."""
    found: list[TableLine] = []
    for release in reversed(RELEASES):
        folder = files("flashinfer_compat.adapters") / f"v{release.version.replace('.', '_')}"
        for file in sorted(folder.iterdir(), key=lambda one: one.name):
            if file.name.endswith(".py"):
                found += _lines_of(ast.parse(file.read_text(encoding="utf-8")))
    return tuple(found)


def _lines_of(tree: ast.Module) -> Iterator[TableLine]:
    bound: dict[str, ast.expr] = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(target, ast.Name) and node.value:
            bound[target.id] = node.value
        elif isinstance(node, ast.FunctionDef) and isinstance(node.body[-1], ast.Return) and node.body[-1].value:
            bound[node.name] = node.body[-1].value  # what several lines have in common
    table = bound.get("LINES")
    if isinstance(table, ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            for call in _calls(value, bound):
                yield _line(_text(key, bound), call, bound)


def _calls(value: ast.expr, bound: dict[str, ast.expr]) -> Iterator[ast.Call]:
    if isinstance(value, ast.Name) and value.id in bound:
        yield from _calls(bound[value.id], bound)
    elif isinstance(value, (ast.Tuple, ast.List)):
        for one in value.elts:
            yield from _calls(one, bound)
    elif isinstance(value, ast.Starred):
        yield from _calls(value.value, bound)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in bound:
        yield from _calls(bound[value.func.id], bound)
    elif isinstance(value, ast.Call):
        yield value


def _line(key: str, call: ast.Call, bound: dict[str, ast.expr]) -> TableLine:
    kind = ast.unparse(call.func).rpartition(".")[2]
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    if kind in ("new", "new_values"):  # rules.new and rules.new_values: since, source, then the keywords themselves
        since, source = (_text(one, bound) for one in call.args)
        instead = _text(given.pop("instead", None), bound) or "Leave it at its default."
        note = f"new in {since} ({source})"
        adds = tuple(given) if kind == "new" else ()
        return TableLine(key, "Refuse" if kind == "new" else "RefuseValues", adds, note, since, instead)
    added = given.get("adds")
    names = [one.value for one in added.keys if isinstance(one, ast.Constant)] if isinstance(added, ast.Dict) else []
    note, since, instead = (_text(given.get(name), bound) for name in ("note", "since", "instead"))
    return TableLine(key, kind, tuple(map(str, names)), note, since, instead)


def _text(node: ast.expr | None, bound: dict[str, ast.expr]) -> str:
    if isinstance(node, ast.Name):
        return _text(bound.get(node.id), bound)
    if isinstance(node, ast.JoinedStr):  # f"{_MODULE}.name"
        return "".join(
            _text(part.value if isinstance(part, ast.FormattedValue) else part, bound) for part in node.values
        )
    if isinstance(node, ast.Attribute):  # note=_ROWS.note
        line = bound.get(ast.unparse(node.value))
        values = {keyword.arg: keyword.value for keyword in line.keywords} if isinstance(line, ast.Call) else {}
        return _text(values.get(node.attr), bound)
    return str(node.value) if isinstance(node, ast.Constant) and node.value is not None else ""

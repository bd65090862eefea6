"""What cannot be resolved, and would matter: it is listed, and never counted as fine."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...surfaces.model import PACKAGE
from ...surfaces.names import is_flashinfer
from ..calls import arguments_of
from ..findings import Finding
from ..syntax import tail
from ..uses import Audit, Use, inner, symbol_of
from ..values import UNKNOWN, Method, Thing


def starred(audit: Audit, use: Use) -> Iterator[Finding]:
    """``from flashinfer.module import *``: which names it brings is the release's to say."""
    node = use.node
    assert isinstance(node, ast.ImportFrom)
    if not node.level and is_flashinfer(str(node.module)) and any(alias.name == "*" for alias in node.names):
        audit.not_resolved(use, node, str(node.module), "which names an import of * brings differs between releases")
    return iter(())


def called(audit: Audit, use: Use) -> Iterator[Finding]:
    """Names put together at run time, and calls of functions that differ whose arguments are written elsewhere."""
    node = use.node
    assert isinstance(node, ast.Call)
    name = tail(node.func)
    if name in ("import_module", "find_spec", "__import__"):
        _module(audit, use, node)
    elif name in ("getattr", "hasattr", "setattr") and len(node.args) > 1:
        _attribute(audit, use, node)
    elif name == "signature" and len(node.args) == 1 and audit.tells(node.args[0], use.file):
        values = audit.by_release(node, use.file)
        if UNKNOWN in values[audit.pinned]:
            symbol = symbol_of(audit.by_release(node.args[0], use.file)[audit.pinned])
            if symbol:
                audit.not_resolved(use, node, symbol, "what inspect.signature shows of it is not recorded")
    elif audit.tells(node.func, use.file):
        _arguments(audit, use, node)
    return iter(())


def _module(audit: Audit, use: Use, node: ast.Call) -> None:
    first = node.args[0] if node.args else None
    start = first.values[0] if isinstance(first, ast.JoinedStr) and first.values else None
    if isinstance(first, ast.BinOp):
        start = first.left
    if isinstance(start, ast.Constant) and str(start.value).startswith(f"{PACKAGE}."):
        audit.not_resolved(use, node, str(start.value).rstrip("."), "the module's name is put together at run time")


def _attribute(audit: Audit, use: Use, node: ast.Call) -> None:
    if not audit.tells(node.args[0], use.file):
        return
    evaluator = audit.evaluators[audit.pinned]
    holders = [one for one in evaluator.values(node.args[0], use.file) if isinstance(one, Thing)]
    if holders and UNKNOWN in evaluator.values(node.args[1], use.file):
        audit.not_resolved(use, node, holders[0].dotted, "the attribute's name is not written here")


def _arguments(audit: Audit, use: Use, node: ast.Call) -> None:
    if not any(keyword.arg is None for keyword in node.keywords) and not any(
        isinstance(argument, ast.Starred) for argument in node.args
    ):
        return
    functions = audit.by_release(node.func, use.file)
    for value in functions[audit.pinned]:
        if not isinstance(inner(value), (Thing, Method)):
            continue
        arguments = arguments_of(node, value, use.file, audit.evaluators[audit.pinned])
        taken = [audit.releases.signature(version, inner(value)) for version in audit.evaluators]
        if (arguments.more_positional or arguments.more_keywords) and any(one != taken[0] for one in taken):
            audit.not_resolved(
                use, node, symbol_of((value,)), "its arguments are put together elsewhere, and releases differ"
            )

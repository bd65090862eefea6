"""FIC202: patches onto names of FlashInfer's that a release lacks: nothing reads what is set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .. import findings
from ..findings import WORKS, Effect, Finding, Outcome
from ..guards import reached
from ..syntax import tail
from ..uses import Audit, Use
from ..values import Literal, Missing, Thing


def assigned(audit: Audit, use: Use) -> Iterator[Finding]:
    """``flashinfer.module.name = …``."""
    node = use.node
    assert isinstance(node, ast.Attribute)
    if isinstance(node.ctx, ast.Store) and audit.tells(node.value, use.file):
        yield from _patched(audit, use, node.value, node.attr)


def set_by_name(audit: Audit, use: Use) -> Iterator[Finding]:
    """``setattr(flashinfer.module, "name", …)``."""
    node = use.node
    assert isinstance(node, ast.Call)
    if tail(node.func) != "setattr" or len(node.args) < 3 or not audit.tells(node.args[0], use.file):
        return
    names = audit.evaluators[audit.pinned].values(node.args[1], use.file)
    if len(names) == 1 and isinstance(names[0], Literal) and isinstance(names[0].value, str):
        yield from _patched(audit, use, node.args[0], names[0].value)


def _patched(audit: Audit, use: Use, holder: ast.expr, name: str) -> Iterator[Finding]:
    outcomes, symbol = {}, ""
    for version, evaluator in audit.evaluators.items():
        outcomes[version] = WORKS
        for value in evaluator.values(holder, use.file):
            if not isinstance(value, Thing):
                continue
            symbol = f"{value.dotted}.{name}"
            there = audit.releases.thing(version, symbol)
            if isinstance(there, Missing) and reached(use, evaluator):
                outcomes[version] = Outcome(Effect.OFF, f"{symbol} is not there: nothing reads what is assigned")
    if symbol and audit.releases.known(symbol):
        audit.uses += 1
        yield from audit.finding(findings.ASSIGNMENT, use, use.node, symbol, outcomes)

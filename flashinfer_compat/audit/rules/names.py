"""FIC001: imports, attributes and lazily imported names that a release lacks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...surfaces.names import is_flashinfer
from .. import findings
from ..evaluate import is_module_name
from ..findings import WORKS, Effect, Finding, Outcome
from ..guards import missed
from ..syntax import Branch, tail
from ..uses import Audit, Use, symbol_of
from ..values import Method, Missing, Thing
from .probes import PROBES, by_text


def imported(audit: Audit, use: Use) -> Iterator[Finding]:
    """``import flashinfer.x``, ``from flashinfer.x import y``."""
    node = use.node
    assert isinstance(node, (ast.Import, ast.ImportFrom))
    if isinstance(node, ast.ImportFrom) and (node.level or not is_flashinfer(str(node.module))):
        return
    if any(isinstance(guard, Branch) and "TYPE_CHECKING" in ast.unparse(guard.test) for guard in use.where.guards):
        return  # read by type checkers alone
    for alias in node.names:
        if isinstance(node, ast.Import):
            dotted = alias.name
        else:
            dotted = str(node.module) if alias.name == "*" else f"{node.module}.{alias.name}"
        if not is_flashinfer(dotted):
            continue
        audit.uses += 1
        outcomes = {}
        for version, evaluator in audit.evaluators.items():
            value = audit.releases.thing(version, dotted, "ImportError")
            bound = alias.asname or alias.name
            outcomes[version] = missed(value, use, evaluator, bound) if isinstance(value, Missing) else WORKS
        yield from audit.finding(findings.MISSING_NAME, use, alias, dotted, outcomes)


def read(audit: Audit, use: Use) -> Iterator[Finding]:
    """``module.name``, ``object.name``."""
    node = use.node
    assert isinstance(node, ast.Attribute)
    if not isinstance(node.ctx, ast.Load) or node not in use.file.concern or not audit.tells(node.value, use.file):
        return
    outcomes = {}
    symbol = ""
    for version, evaluator in audit.evaluators.items():
        holders = evaluator.values(node.value, use.file)
        values = evaluator.values(node, use.file)
        if any(isinstance(value, (Thing, Method)) for value in values):
            symbol = symbol or symbol_of(values)
        # What is missing already in front of the dot is reported there.
        fresh = holders and not any(isinstance(holder, Missing) for holder in holders)
        missing = [value for value in values if isinstance(value, Missing)]
        if fresh and missing and len(missing) == len(values):
            symbol = missing[0].dotted
            outcomes[version] = missed(missing[0], use, evaluator)
        else:
            outcomes[version] = WORKS
    if symbol:
        audit.uses += 1
        yield from audit.finding(findings.MISSING_NAME, use, node, symbol, outcomes)


def named(audit: Audit, use: Use) -> Iterator[Finding]:
    """``helper("flashinfer.module", "name")``: looked up when it is first used."""
    node = use.node
    assert isinstance(node, ast.Call)
    if len(node.args) < 2 or not isinstance(node.args[0], ast.Constant):
        return
    texts = [str(one.value) for one in node.args[:2] if isinstance(one, ast.Constant)]
    if len(texts) == 2 and is_module_name(texts[0]) and texts[1].isidentifier() and tail(node.func) not in PROBES:
        dotted = ".".join(texts)
        lost = Outcome(Effect.LATER, f"{dotted} is looked up when it is first used, and is not there")
        yield from by_text(audit, findings.MISSING_NAME, use, dotted, lost)

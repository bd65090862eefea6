"""FIC002: questions about FlashInfer that a release answers with No."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .. import findings
from ..evaluate import Evaluator, is_module_name
from ..findings import WORKS, Effect, Finding, Outcome
from ..guards import reached, turned_off
from ..syntax import tail
from ..uses import Audit, Use
from ..values import UNKNOWN, Instance, Literal, Missing, Parameters, Thing, truths

PROBES = ("hasattr", "getattr", "find_spec", "callable", "import_module", "__import__")


def asked(audit: Audit, use: Use) -> Iterator[Finding]:
    """``hasattr``, ``getattr`` and ``find_spec``, and what else is decided by a release."""
    node = use.node
    assert isinstance(node, ast.Call)
    if tail(node.func) not in PROBES or not audit.tells(node, use.file):
        return
    symbol = ""
    for evaluator in audit.evaluators.values():
        symbol = symbol or _about(node, use, evaluator)
    if symbol:
        yield from _answered(audit, use, node, symbol, f"{symbol} is not there")


def compared(audit: Audit, use: Use) -> Iterator[Finding]:
    """``"parameter" in inspect.signature(function).parameters``."""
    node = use.node
    assert isinstance(node, ast.Compare)
    if len(node.ops) != 1 or not isinstance(node.ops[0], ast.In) or not audit.tells(node, use.file):
        return
    evaluator = audit.evaluators[audit.pinned]
    names = evaluator.values(node.left, use.file)
    holders = evaluator.values(node.comparators[0], use.file)
    if len(names) == len(holders) == 1 and isinstance(names[0], Literal) and isinstance(holders[0], Parameters):
        why = f"{holders[0].of} takes no {names[0].value}"
        yield from _answered(audit, use, node, holders[0].of, why)


def _answered(audit: Audit, use: Use, node: ast.expr, symbol: str, why: str) -> Iterator[Finding]:
    """A question that the pinned release answers with Yes."""
    answers: dict[str, frozenset[bool]] = {}
    for version, values in audit.by_release(node, use.file).items():
        known = values and UNKNOWN not in values and all(isinstance(one, (Literal, Thing)) for one in values)
        answers[version] = truths(values) if known else frozenset()
    if answers.get(audit.pinned) != frozenset((True,)):
        return
    audit.uses += 1
    outcomes = {}
    for version, evaluator in audit.evaluators.items():
        lost = answers[version] == {False} and reached(use, evaluator)
        outcomes[version] = turned_off(node, why, use) if lost else WORKS
    yield from audit.finding(findings.PROBE, use, node, symbol, outcomes)


def _about(node: ast.Call, use: Use, evaluator: Evaluator) -> str:
    """What a question is about."""
    name = tail(node.func)
    if name in ("hasattr", "getattr") and len(node.args) > 1:
        names = evaluator.values(node.args[1], use.file)
        for holder in evaluator.values(node.args[0], use.file):
            if isinstance(holder, (Thing, Instance)) and len(names) == 1 and isinstance(names[0], Literal):
                return f"{holder.dotted if isinstance(holder, Thing) else holder.of}.{names[0].value}"
    if name == "find_spec" and node.args and isinstance(node.args[0], ast.Constant):
        return str(node.args[0].value)
    return ""


def listed(audit: Audit, use: Use) -> Iterator[Finding]:
    """``("flashinfer.module", "name")`` in a table of names to look for."""
    node = use.node
    assert isinstance(node, ast.Tuple)
    texts = [one.value if isinstance(one, ast.Constant) else None for one in node.elts]
    if len(texts) == 2 and all(isinstance(text, str) for text in texts) and is_module_name(str(texts[0])):
        dotted = ".".join(map(str, texts))
        audit.uses += audit.releases.known(dotted)
        lost = Outcome(Effect.OFF, f"{dotted} is looked for and not found")
        yield from by_text(audit, findings.PROBE, use, dotted, lost)


def by_text(audit: Audit, code: findings.Code, use: Use, dotted: str, lost: Outcome) -> Iterator[Finding]:
    """A name of FlashInfer's given as text, `lost` on a release that does not have it."""
    if audit.releases.known(dotted):
        outcomes = {
            version: lost if isinstance(audit.releases.thing(version, dotted), Missing) else WORKS
            for version in audit.evaluators
        }
        yield from audit.finding(code, use, use.node, dotted, outcomes)

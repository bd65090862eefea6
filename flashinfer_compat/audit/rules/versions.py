"""FIC205 and FIC206: FlashInfer's version compared as text, or exactly."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from packaging.version import Version

from ...surfaces.model import PACKAGE
from .. import findings
from ..findings import WORKS, Effect, Finding, Outcome
from ..guards import turned_off
from ..uses import Audit, Use
from ..values import Literal


def compared(audit: Audit, use: Use) -> Iterator[Finding]:
    node = use.node
    assert isinstance(node, ast.Compare)
    if len(node.ops) != 1 or not audit.tells(node, use.file):
        return
    sides = [audit.by_release(one, use.file) for one in (node.left, *node.comparators)]
    here = [side[audit.pinned] for side in sides]
    texts = [side[0].value for side in here if len(side) == 1 and isinstance(side[0], Literal)]
    varies = any(len(set(side.values())) > 1 for side in sides)
    if len(texts) != 2 or not varies:
        return
    symbol = f"{PACKAGE}.__version__"
    if isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) and all(isinstance(text, str) for text in texts):
        as_text = Outcome(Effect.CHANGED, "releases are ordered as text: 0.10 comes before 0.7")
        outcomes = {version: as_text if version != audit.pinned else WORKS for version in audit.evaluators}
        yield from audit.finding(findings.VERSION_TEXT, use, node, symbol, outcomes)
        return
    outcomes = {}
    holds = audit.evaluators[audit.pinned].truth(node, use.file) == {True}
    for version, evaluator in audit.evaluators.items():
        lost = holds and evaluator.truth(node, use.file) == {False}
        why = f"FlashInfer {version} is not what is asked for"
        outcomes[version] = turned_off(node, why, use) if lost else WORKS
    exact = isinstance(node.ops[0], ast.Eq) and any(Version(version).is_postrelease for version in outcomes)
    post = all(outcome == WORKS for version, outcome in outcomes.items() if not Version(version).is_postrelease)
    yield from audit.finding(findings.POST_RELEASE if exact and post else findings.PROBE, use, node, symbol, outcomes)

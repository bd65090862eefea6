"""FIC203: a result taken apart into another number of parts than a release returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .. import findings
from ..findings import WORKS, Effect, Finding, Outcome
from ..guards import reached
from ..uses import Audit, Use, inner


def unpacked(audit: Audit, use: Use) -> Iterator[Finding]:
    """``a, b = function(…)``, where releases say that they return something else."""
    node = use.node
    assert isinstance(node, ast.Assign)
    call, target = node.value, node.targets[0]
    if not isinstance(call, ast.Call) or not isinstance(target, (ast.Tuple, ast.List)):
        return
    if any(isinstance(one, ast.Starred) for one in target.elts) or not audit.tells(call.func, use.file):
        return
    wanted = len(target.elts)
    functions = audit.by_release(call.func, use.file)
    returned = {
        version: {audit.releases.parts(version, inner(one)) for one in values} for version, values in functions.items()
    }
    if returned[audit.pinned] - {None, wanted}:
        return  # the source is right about the release that it is written for, whatever its annotation says
    outcomes = {}
    for version, evaluator in audit.evaluators.items():
        if returned[version] == {1} and wanted > 1:
            # 0.7.1 to 0.7.2.post1 say so of chain_speculative_sampling, and return three: it is no proof.
            audit.not_resolved(use, node, audit.symbol(functions), f"{version} says that it returns a single tensor")
            outcomes[version] = WORKS
            continue
        wrong = len(returned[version]) == 1 and not returned[version] & {None, wanted} and reached(use, evaluator)
        why = f"returns {next(iter(returned[version]), None)} instead of {wanted}"
        outcomes[version] = Outcome(Effect.BREAKS, why) if wrong else WORKS
    yield from audit.finding(findings.UNPACKED, use, node, audit.symbol(functions), outcomes)

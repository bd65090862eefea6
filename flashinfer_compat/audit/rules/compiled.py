"""FIC201: a compiled module's function called with another number of arguments, which TVM-FFI checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .. import findings
from ..calls import arguments_of
from ..findings import WORKS, Effect, Finding, Outcome
from ..uses import Audit, Use
from ..values import RawModule


def called(audit: Audit, use: Use) -> Iterator[Finding]:
    """``wrapper._cached_module.plan(…)`` with arguments of a known number."""
    node = use.node
    assert isinstance(node, ast.Call)
    if not audit.tells(node.func, use.file):
        return
    evaluator = audit.evaluators[audit.pinned]
    raw = next((one for one in evaluator.values(node.func, use.file) if isinstance(one, RawModule)), None)
    if raw is None or not raw.function:
        return
    arguments = arguments_of(node, raw, use.file, evaluator)
    symbol = f"{raw.of or 'wrapper'}._cached_module.{raw.function}"
    if arguments.more_positional or arguments.more_keywords or arguments.keywords:
        audit.not_resolved(use, node, symbol, "how many arguments it is given is not written here")
        return
    fits = {version: arguments.positional in _arities(audit, version, raw) for version in audit.evaluators}
    if not any(fits.values()):
        return
    audit.uses += 1
    why = f"TypeError: {arguments.positional} arguments, and no {raw.function} takes so many"
    outcomes = {version: WORKS if fits[version] else Outcome(Effect.BREAKS, why) for version in audit.evaluators}
    yield from audit.finding(findings.RAW_ARITY, use, node, symbol, outcomes)


def _arities(audit: Audit, version: str, raw: RawModule) -> set[int]:
    """How many arguments the functions of that name take in the modules that the call can be for."""
    surface = audit.releases.surfaces[version]
    family = "mla" if "MLA" in raw.of else "batch_"  # of an unknown wrapper all that there are
    return {
        len(found)
        for file in surface.sources
        if file.endswith("binding.cu") and family in file
        if (found := surface.sources[file].exports.get(raw.function)) is not None
    }

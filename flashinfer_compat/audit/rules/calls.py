"""FIC101 to FIC105: calls, bound to what each release takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...surfaces.model import Kind
from .. import findings
from ..calls import Bound, arguments_of, bind
from ..findings import WORKS, Effect, Finding, Outcome
from ..guards import handled, reached
from ..uses import Audit, Use, inner
from ..values import Method, Missing, Thing, Values


def bound(audit: Audit, use: Use) -> Iterator[Finding]:
    node = use.node
    assert isinstance(node, ast.Call)
    if not audit.tells(node.func, use.file):
        return
    functions = audit.by_release(node.func, use.file)
    if not any(isinstance(inner(one), (Thing, Method)) for values in functions.values() for one in values):
        return
    audit.uses += 1
    fitting = {version: _fit(audit, use, node, values, version) for version, values in functions.items()}
    pinned = fitting[audit.pinned]
    if pinned and not pinned[0].fits:
        return  # pieced together otherwise than it is written: what the pinned release takes is what is passed
    outcomes: dict[str, dict[findings.Code, Outcome]] = {version: {} for version in fitting}
    symbol = audit.symbol(functions)
    for version, fits in fitting.items():
        evaluator = audit.evaluators[version]
        if not fits or not reached(use, evaluator):
            continue
        if all(not one.fits for one in fits):
            for code, why in _wrong(fits[0]):
                outcomes[version][code] = handled("TypeError", f"TypeError: {why}", use, evaluator)
        elif pinned and version != audit.pinned:
            shifted = _shifted(pinned[0], fits[0])
            if shifted:
                outcomes[version][findings.SHIFT] = Outcome(Effect.BREAKS, shifted)
            changed = _changed_defaults(pinned[0], fits[0])
            if changed:
                outcomes[version][findings.DEFAULT] = Outcome(Effect.CHANGED, changed)
    for code in {code for by_code in outcomes.values() for code in by_code}:
        by_release = {version: by_code.get(code, WORKS) for version, by_code in outcomes.items()}
        yield from audit.finding(code, use, node, symbol, by_release)


def _fit(audit: Audit, use: Use, node: ast.Call, values: Values, version: str) -> list[Bound]:
    """How the call fits each function of FlashInfer's that it may call on a release."""
    found = []
    for value in values:
        taken = audit.releases.signature(version, inner(value))
        if taken is not None:
            parameters, accepts = taken
            arguments = arguments_of(node, value, use.file, audit.evaluators[version])
            shown = [one for one in parameters if one.kind is not Kind.VAR_POSITIONAL or arguments.positional]
            found.append(bind(arguments, shown, accepts))
        elif not isinstance(value, Missing):
            return []  # it may as well be something of the engine's own
    return found


def _wrong(bound: Bound) -> Iterator[tuple[findings.Code, str]]:
    if bound.unknown:
        yield findings.UNKNOWN_KEYWORD, f"unexpected keyword {', '.join(bound.unknown)}"
    if bound.too_many is not None:
        yield findings.TOO_MANY, f"takes {bound.too_many} positional arguments"
    if bound.twice:
        yield findings.SHIFT, f"{', '.join(bound.twice)} is passed twice, by position and by keyword"
    if bound.missing:
        yield findings.REQUIRED, f"{', '.join(bound.missing)} is required"


def _shifted(pinned: Bound, here: Bound) -> str:
    """Positional arguments that reach another parameter which the pinned release has elsewhere, or not at all."""
    for before, after in zip(pinned.places, here.places, strict=False):
        known = {*here.places, *here.defaults}
        if before != after and before in known:
            return f"the argument for {before} is bound to {after}"
    return ""


def _changed_defaults(pinned: Bound, here: Bound) -> str:
    changed = [
        f"{name} defaults to {here.defaults[name]} instead of {text}"
        for name, text in pinned.defaults.items()
        if name in here.defaults and here.defaults[name] != text
    ]
    return "; ".join(changed)

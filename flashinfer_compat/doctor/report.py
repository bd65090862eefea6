"""The facade's features as active here, and what an upgrade took away."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import features, namespace
from ..errors import CompatError
from ..selection import BACKEND_VARIABLE
from ..support import Support

#: From best to worst. Native and emulated give the same result: neither is a loss against the other.
_RANK = {str(Support.NATIVE): 0, str(Support.EMULATED): 0, str(Support.IGNORED): 1, str(Support.UNAVAILABLE): 2}
UNKNOWN = "unknown"
_NO_REPORT = "is no report: write one with flashinfer-compat report --format json"


@dataclass(frozen=True)
class Lost:
    """A feature that is worse than in the older report, and what to do."""

    feature: str
    before: str
    now: str
    remedy: str


def current() -> dict[str, Any]:
    """`features.report()`; where FlashInfer fails on import, an ``error`` and no features."""
    try:
        return features.report()
    # Whatever FlashInfer's import raises: a RuntimeError of its version check, an OSError of a library.
    except Exception as error:
        selected = namespace.selected
        return {
            "flashinfer": selected.installed,
            "adapter": selected.release.version if selected.release else None,
            "inferred": False,
            "error": f"{type(error).__name__}: {error}",
            "features": {},
            "gates": {},
        }


def read(path: Path) -> dict[str, Any]:
    """An older report, as ``report --format json`` wrote it. Raises `CompatError` for another file."""
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CompatError(f"{path} {_NO_REPORT}") from error
    parts = [report.get("features"), report.get("gates", {})] if isinstance(report, dict) else [None]
    if not all(isinstance(part, dict) and all(each in list(_RANK) for each in part.values()) for part in parts):
        raise CompatError(f"{path} {_NO_REPORT}")
    if "error" in report:
        raise CompatError(f"{path} is of a FlashInfer that could not be imported ({report['error']}): nothing to lose")
    return report


def lost(old: dict[str, Any], new: dict[str, Any]) -> list[Lost]:
    """The features and gates that `old` had and `new` has no longer, or only ignores."""
    found = []
    outcomes = _outcomes(new)
    for feature, before in _outcomes(old).items():
        now = outcomes.get(feature, UNKNOWN)
        if _RANK.get(now, len(_RANK)) > _RANK.get(before, 0):
            found.append(Lost(feature, before, now, _remedy(feature, old, new)))
    return found


def _outcomes(report: dict[str, Any]) -> dict[str, str]:
    """Of the features, and of the gates, which reports of old have not."""
    return {**report["features"], **report.get("gates", {})}


def as_dict(one: Lost) -> dict[str, str]:
    return asdict(one)


def _remedy(feature: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    if "error" in new:
        return f"FlashInfer cannot be imported ({new['error']}): flashinfer-compat doctor"
    if new.get("backend") == "reference":
        return f"The reference in plain PyTorch takes the place of FlashInfer: unset {BACKEND_VARIABLE}."
    if new["flashinfer"] is None:
        return namespace.NOTHING_INSTALLED
    if feature not in _outcomes(new):
        return "this flashinfer_compat has no such feature: see its CHANGELOG"
    # Of a class the lines of its methods come too: those that say what is lost.
    outcome = f"{_outcomes(new)[feature]}: "
    told = [line.strip() for line in features.explain(feature).splitlines()[1:] if outcome in line]
    if old.get("flashinfer"):
        told.append(f"Or go back to FlashInfer {old['flashinfer']}")
    return " ".join(f"{line.rstrip('.')}." for line in told)

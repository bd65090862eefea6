"""Findings as SARIF 2.1.0, which code-scanning services read."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from .audited import Audited
from .findings import CODES, UNRESOLVED, Effect, Finding, Unresolved

_LEVELS = {
    Effect.CHANGED: "note",
    Effect.ALTERNATIVE: "note",
    Effect.OFF: "warning",
    Effect.LATER: "error",
    Effect.BREAKS: "error",
}


def as_sarif(found: Audited, root: Path) -> dict[str, Any]:
    """The log; paths below `root` are written relative to it. What is not resolved is in it as notes."""
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "flashinfer-compat audit",
                        "rules": [
                            {
                                "id": code.code,
                                "name": code.title.title().replace(" ", "").replace("'", ""),
                                "shortDescription": {"text": code.title},
                                "fullDescription": {"text": code.explanation},
                            }
                            for code in (*CODES, UNRESOLVED)
                        ],
                    }
                },
                "results": [
                    *(_result(finding, root) for finding in found.findings),
                    *(_unresolved(one, root) for one in found.unresolved),
                ],
            }
        ],
    }


def _result(finding: Finding, root: Path) -> dict[str, Any]:
    return {
        "ruleId": finding.code.code,
        "level": _LEVELS.get(finding.worst, "none"),
        "message": {"text": finding.sentence()},
        "locations": [_location(finding.path, finding.line, finding.column, root)],
        "partialFingerprints": {"flashinferCompat/v1": finding.fingerprint},
    }


def _unresolved(one: Unresolved, root: Path) -> dict[str, Any]:
    return {
        "ruleId": UNRESOLVED.code,
        "kind": "review",
        "level": "none",
        "message": {"text": f"{one.symbol}: {one.why}."},
        "locations": [_location(one.path, one.line, one.column, root)],
    }


def _location(path: str, line: int, column: int, root: Path) -> dict[str, Any]:
    given = Path(path)
    try:
        shown = given.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        shown = given.as_posix()
    return {
        "physicalLocation": {
            # A URI reference: blanks and the like are escaped.
            "artifactLocation": {"uri": quote(shown)},
            "region": {"startLine": max(line, 1), "startColumn": max(column, 1)},
        }
    }

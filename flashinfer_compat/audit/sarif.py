"""Findings as SARIF 2.1.0, which code-scanning services read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .findings import CODES, Effect, Finding

_LEVELS = {
    Effect.CHANGED: "note",
    Effect.ALTERNATIVE: "note",
    Effect.OFF: "warning",
    Effect.LATER: "error",
    Effect.BREAKS: "error",
}


def as_sarif(found: Iterable[Finding], root: Path) -> dict[str, Any]:
    """The log; paths below `root` are written relative to it."""
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
                            for code in CODES
                        ],
                    }
                },
                "results": [_result(finding, root) for finding in found],
            }
        ],
    }


def _result(finding: Finding, root: Path) -> dict[str, Any]:
    path = Path(finding.path)
    try:
        shown = path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        shown = path.as_posix()
    return {
        "ruleId": finding.code.code,
        "level": _LEVELS.get(finding.worst, "none"),
        "message": {"text": finding.sentence()},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": shown},
                    "region": {"startLine": max(finding.line, 1), "startColumn": max(finding.column, 1)},
                }
            }
        ],
        "partialFingerprints": {"flashinferCompat/v1": finding.fingerprint},
    }

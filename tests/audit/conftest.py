"""Small sources, audited: what each release makes of them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from flashinfer_compat.audit.files import PYTHON, Skipped, listed
from flashinfer_compat.audit.findings import Effect, Finding
from flashinfer_compat.audit.releases import Releases
from flashinfer_compat.audit.tree import SourceTree
from flashinfer_compat.audit.uses import Audit

SUPPORTED = ("0.7.1", "0.7.2", "0.7.2.post1", "0.7.3", "0.7.4")
RELEASES = Releases(SUPPORTED)


def tree(paths: list[Path], releases: Releases) -> SourceTree:
    """The Python files below some paths."""
    skipped: list[Skipped] = []
    return SourceTree([one for one in listed(paths, skipped) if one.name.endswith(PYTHON)], releases, skipped)


Audited = Callable[..., list[Finding]]


@pytest.fixture
def audited(audit: Callable[..., Audit]) -> Audited:
    """The findings of a source, or of several by file name, written for a release."""

    def run(source: str | dict[str, str], pinned: str = "0.7.2") -> list[Finding]:
        return list(audit(source, pinned).found())

    return run


@pytest.fixture
def audit(tmp_path: Path) -> Callable[..., Audit]:
    """The audit of a source, or of several by file name."""

    def prepared(source: str | dict[str, str], pinned: str = "0.7.2") -> Audit:
        files = source if isinstance(source, dict) else {"engine.py": source}
        for name, text in files.items():
            path = tmp_path / "engine" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return Audit(tree([tmp_path / "engine"], RELEASES), RELEASES, pinned)

    return prepared


def told(found: list[Finding]) -> list[tuple[str, str, dict[str, str]]]:
    """Code, symbol, and the effect on each release where there is one."""
    return [
        (
            one.code.code,
            one.symbol.removeprefix("flashinfer."),
            {
                release: str(outcome.effect)
                for release, outcome in one.outcomes.items()
                if outcome.effect > Effect.NOT_REACHED
            },
        )
        for one in found
    ]


def failing(found: list[Finding]) -> list[tuple[str, str, dict[str, str]]]:
    """Only what breaks, is off or fails later."""
    return told([one for one in found if one.worst.is_failure])

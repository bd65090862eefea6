"""Small sources, audited: what each release makes of them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from flashinfer_compat.audit.findings import Effect, Finding
from flashinfer_compat.audit.releases import Releases
from flashinfer_compat.audit.tree import SourceTree
from flashinfer_compat.audit.uses import Audit

SUPPORTED = ("0.7.1", "0.7.2", "0.7.2.post1", "0.7.3", "0.7.4")
RELEASES = Releases(SUPPORTED)

Audited = Callable[..., list[Finding]]


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    """The findings of a source, or of several by file name, written for a release."""

    def run(source: str | dict[str, str], pinned: str = "0.7.2") -> list[Finding]:
        files = source if isinstance(source, dict) else {"engine.py": source}
        for name, text in files.items():
            path = tmp_path / "engine" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return list(Audit(tree([tmp_path / "engine"], RELEASES), RELEASES, pinned).found())

    return run


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

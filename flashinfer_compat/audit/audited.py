"""An engine's sources, audited: everything below some paths, held against releases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from ..adapters import RELEASES
from ..surfaces import store
from . import cpp
from .facade import answer
from .files import PYTHON, Skipped, listed
from .findings import Finding, Unresolved
from .releases import Releases
from .requirement import FLASHINFER, Declared, clashes, declared, is_declaration, pinned
from .tree import SourceTree
from .uses import Audit

SUPPORTED = tuple(release.version for release in RELEASES)
KNOWN = tuple(sorted((*store.RECORDED, *store.DERIVED), key=Version))


@dataclass(frozen=True)
class Audited:
    """What an audit has found. `files` counts Python and C++ files, `uses` places that use FlashInfer."""

    written_for: str
    releases: tuple[str, ...]
    declared: list[Declared]
    files: int
    uses: int
    findings: list[Finding]
    unresolved: list[Unresolved]
    skipped: list[Skipped]

    def failing(self, release: str, *, facade: bool = False) -> list[Finding]:
        """What breaks, is off or fails later on a release; with the facade, what it does not mend."""
        return [one for one in self.findings if one.fails_on(release, facade=facade)]


def audit(
    paths: Iterable[Path],
    source: str | None = None,
    versions: Iterable[str] = SUPPORTED,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Audited:
    """Audit the files below `paths` for `versions`. `source`: the release they are written for, None: as declared."""
    skipped: list[Skipped] = []
    files = list(listed(paths, skipped))
    requirements = declared([one for one in files if is_declaration(one.name)], skipped)
    written_for = source or pinned(requirements, KNOWN) or SUPPORTED[-1]
    releases = Releases(tuple(sorted({*versions, written_for}, key=Version)))
    tree = SourceTree([one for one in files if one.name.endswith(PYTHON)], releases, skipped)
    python = Audit(tree, releases, written_for)
    found = list(python.found(progress))
    sources = [one for one in files if one.name.endswith(cpp.SUFFIXES)]
    found += cpp.audited(sources, releases.surfaces, skipped)
    requires = {version: surface.metadata.requires_dist for version, surface in releases.surfaces.items()}
    found += clashes([one for one in requirements if one.name != FLASHINFER], requires, written_for)
    found = [replace(one, facade=answer(one, releases.surfaces.values())) for one in found]
    return Audited(
        written_for,
        tuple(releases.surfaces),
        [one for one in requirements if one.name == FLASHINFER],
        tree.count + len(sources),
        python.uses,
        found,
        python.unresolved,
        skipped,
    )

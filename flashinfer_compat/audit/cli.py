"""``flashinfer-compat audit``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import click
from packaging.version import Version

from ..adapters import RELEASES
from ..surfaces import store
from .facade import answer
from .findings import Effect, Finding
from .releases import Releases
from .requirement import declared, pinned
from .sarif import as_sarif
from .tree import SourceTree
from .uses import Audit

_SUPPORTED = tuple(release.version for release in RELEASES)
_STYLES = {Effect.BREAKS: "red", Effect.LATER: "red", Effect.OFF: "yellow"}


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--from", "source", default="auto", help="The release that the sources are written for; auto reads the pin."
)
@click.option("--to", "target", default="all", help="The release to audit for, or all.")
@click.option("--format", "style", type=click.Choice(["text", "json", "sarif", "github"]), default="text")
@click.option("--baseline", type=click.Path(path_type=Path), help="A JSON report: findings in it do not count.")
def audit(paths: tuple[Path, ...], source: str, target: str, style: str, baseline: Path | None) -> None:
    """What becomes of each use of FlashInfer below PATHS, release by release. Nothing is imported or run.

    Exits with 1 if something breaks, is silently off or fails later on an audited release.
    """
    known = (*store.RECORDED, *store.DERIVED)
    for given in {source, target} - {"auto", "all"}:
        if given not in known:
            raise click.UsageError(f"FlashInfer {given} is not recorded. Recorded: {', '.join(sorted(known))}.")
    tree = SourceTree(paths)
    requirements = declared(tree.requirements, tree.skipped)
    written_for = (pinned(requirements, known) if source == "auto" else source) or _SUPPORTED[-1]
    versions = _SUPPORTED if target == "all" else (target,)
    ordered = sorted({*versions, written_for}, key=Version)
    checked = Audit(tree, Releases(tuple(ordered)), written_for)
    found = [replace(one, facade=answer(one.code, one.symbol, one.outcomes, one.defined)) for one in checked.found()]
    accepted = _fingerprints(baseline)
    found = [one for one in found if one.fingerprint not in accepted]
    if style == "json":
        report = {
            "from": written_for,
            "releases": list(checked.evaluators),
            "files": tree.count,
            "uses": checked.uses,
            "findings": [one.as_dict() for one in found],
            "skipped": [{"path": one.path, "why": one.why} for one in tree.skipped],
        }
        click.echo(json.dumps(report, indent=2))
    elif style == "sarif":
        click.echo(json.dumps(as_sarif(found, Path.cwd()), indent=2))
    elif style == "github":
        for one in found:
            level = "error" if one.worst.is_failure else "warning"
            text = one.sentence().replace("%", "%25").replace("\n", "%0A")
            click.echo(f"::{level} file={one.path},line={one.line},col={one.column},title={one.code.code}::{text}")
    else:
        _print(found, tree, checked, written_for)
    if any(one.worst.is_failure for one in found):
        sys.exit(1)


def _fingerprints(baseline: Path | None) -> frozenset[str]:
    if baseline is None or not baseline.exists():
        return frozenset()
    report = json.loads(baseline.read_text(encoding="utf-8"))
    return frozenset(one["fingerprint"] for one in report["findings"])


def _print(found: list[Finding], tree: SourceTree, checked: Audit, written_for: str) -> None:
    for one in found:
        place = f"{one.path}:{one.line}:{one.column}"
        click.echo(f"{place}: {click.style(one.code.code, fg=_STYLES.get(one.worst), bold=True)} {one.sentence()}")
    for skipped in tree.skipped:
        click.echo(f"{skipped.path}: skipped, {skipped.why}")
    counts = Counter(release for one in found for release, outcome in one.outcomes.items() if outcome.effect.is_failure)
    click.echo(
        f"\n{tree.count} Python files, {checked.uses} uses of FlashInfer, written for {written_for}. "
        + ", ".join(f"{release}: {counts[release]} broken" for release in checked.evaluators)
    )

"""``flashinfer-compat audit`` and ``flashinfer-compat pin``."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from .audited import KNOWN, SUPPORTED, Audited
from .audited import audit as audited
from .findings import Effect
from .range import Range, keep_apart, specifier
from .sarif import as_sarif

_STYLES = {Effect.BREAKS: "red", Effect.LATER: "red", Effect.OFF: "yellow"}
_PATHS = click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))


@click.command()
@_PATHS
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
    for given in {source, target} - {"auto", "all"}:
        if given not in KNOWN:
            raise click.UsageError(f"FlashInfer {given} is not recorded. Recorded: {', '.join(KNOWN)}.")
    accepted = _fingerprints(baseline)
    versions = SUPPORTED if target == "all" else (target,)
    found = _audited(paths, None if source == "auto" else source, versions)
    found.findings[:] = [one for one in found.findings if one.fingerprint not in accepted]
    if style == "json":
        click.echo(json.dumps(_as_dict(found), indent=2))
    elif style == "sarif":
        click.echo(json.dumps(as_sarif(found, Path.cwd()), indent=2))
    elif style == "github":
        for one in found.findings:
            level = "error" if one.worst.is_failure else "warning"
            place = f"file={_escaped(one.path, in_property=True)},line={one.line},col={one.column}"
            click.echo(f"::{level} {place},title={one.code.code}::{_escaped(one.sentence())}")
    else:
        _print(found)
    if any(one.worst.is_failure for one in found.findings):
        sys.exit(1)


def _audited(paths: tuple[Path, ...], source: str | None, versions: tuple[str, ...]) -> Audited:
    """The audit, with a progress bar where somebody looks, and without collecting garbage: there is none."""
    with _progress() as progress, _uncollected():
        return audited(paths, source, versions, progress)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("files", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def _uncollected() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _fingerprints(baseline: Path | None) -> frozenset[str]:
    if baseline is None:
        return frozenset()
    try:
        report = json.loads(baseline.read_text(encoding="utf-8"))
        return frozenset(one["fingerprint"] for one in report["findings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"{baseline} is no JSON report of an audit: {error!r}.") from error


def _as_dict(found: Audited) -> dict[str, object]:
    return {
        "from": found.written_for,
        "releases": list(found.releases),
        "files": found.files,
        "uses": found.uses,
        "findings": [one.as_dict() for one in found.findings],
        "unresolved": [one.as_dict() for one in found.unresolved],
        "skipped": [{"path": one.path, "why": one.why} for one in found.skipped],
    }


def _escaped(text: str, *, in_property: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if in_property else text


def _print(found: Audited) -> None:
    for one in found.findings:
        place = f"{one.path}:{one.line}:{one.column}"
        click.echo(f"{place}: {click.style(one.code.code, fg=_STYLES.get(one.worst), bold=True)} {one.sentence()}")
    for other in found.unresolved:
        click.echo(f"{other.path}:{other.line}:{other.column}: unresolved, {other.symbol}: {other.why}")
    for skipped in found.skipped:
        click.echo(f"{skipped.path}: skipped, {skipped.why}")
    click.echo(
        f"\n{found.files} files, {found.uses} uses of FlashInfer, written for {found.written_for}, "
        f"{len(found.unresolved)} unresolved. "
        + ", ".join(f"{release}: {len(found.failing(release))} broken" for release in found.releases)
    )


@click.command()
@_PATHS
@click.option("--check", is_flag=True, help="Fail if a declared requirement allows a release outside the range.")
@click.option("--facade", is_flag=True, help="Check against what runs with flashinfer_compat.")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text")
def pin(paths: tuple[Path, ...], check: bool, facade: bool, style: str) -> None:
    """The releases that the sources below each of PATHS run on, as they are and with flashinfer_compat.

    Several PATHS are several engines of one environment: what they share, or which uses keep them apart.
    """
    ranges = [Range(path.resolve().name, _audited((path,), None, SUPPORTED)) for path in paths]
    together = {
        with_facade: [v for v in SUPPORTED if all(v in one.runs_on(facade=with_facade) for one in ranges)]
        for with_facade in (False, True)
    }
    outside = [
        (one, declared, strays)
        for one in ranges
        for declared in one.audited.declared
        if (strays := [v for v in SUPPORTED if declared.allows(v) and v not in one.runs_on(facade=facade)])
    ]
    undeclared = [one for one in ranges if not one.audited.declared]
    if style == "json":
        report = {
            "engines": [one.as_dict() for one in ranges],
            "native": {"releases": together[False], "specifier": specifier(together[False])},
            "facade": {"releases": together[True], "specifier": specifier(together[True])},
            "outside": [
                {"engine": one.name, "requirement": str(declared.requirement), "releases": strays}
                for one, declared, strays in outside
            ],
        }
        click.echo(json.dumps(report, indent=2))
    else:
        _print_ranges(ranges, together)
        if check:
            for _, declared, strays in outside:
                click.echo(f"{declared.path}:{declared.line}: {declared.requirement} allows {', '.join(strays)}")
            for one in undeclared:
                click.echo(f"{one.name}: no requirement on flashinfer-python is declared")
    if check and (outside or undeclared):
        sys.exit(1)


def _print_ranges(ranges: list[Range], together: dict[bool, list[str]]) -> None:
    width = max(len(one.name) for one in ranges)
    click.echo(f"{'':{width}}  " + "  ".join(f"{release:>11}" for release in SUPPORTED))
    for one in ranges:
        cells = []
        for release in SUPPORTED:
            broken, left = len(one.audited.failing(release)), len(one.audited.failing(release, facade=True))
            cells.append("runs" if not broken else f"{broken} ({left})")
        click.echo(f"{one.name:{width}}  " + "  ".join(f"{cell:>11}" for cell in cells))
    click.echo("\nBroken uses (left with flashinfer_compat).\n")
    for one in ranges:
        click.echo(f"{one.name}: {specifier(one.runs_on(facade=False)) or 'no release'}, as it is")
        click.echo(f"{one.name}: {specifier(one.runs_on(facade=True)) or 'no release'}, with flashinfer_compat")
    if len(ranges) > 1:
        for with_facade, how in ((False, "as they are"), (True, "with flashinfer_compat")):
            click.echo(f"together: {specifier(together[with_facade]) or 'no release'}, {how}")
            if not together[with_facade]:
                for engine, finding, releases in keep_apart(ranges, facade=with_facade):
                    place = f"{finding.path}:{finding.line}"
                    click.echo(f"  {engine} not on {', '.join(releases)}: {place} {finding.symbol}")

"""``flashinfer-compat doctor``, ``explain`` and ``report``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from ..errors import CompatError
from .checks import examine
from .explain import explained
from .model import Finding, Machine, Outcome

_STYLES = {Outcome.OK: "green", Outcome.NOTE: "yellow", Outcome.PROBLEM: "bold red"}


@click.command()
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text")
def doctor(style: str) -> None:
    """What is wrong with this machine's FlashInfer, and the fix. FlashInfer is not imported; nothing is changed."""
    found = examine(Machine())
    healthy = all(finding.outcome is not Outcome.PROBLEM for _, finding in found)
    if style == "json":
        findings = [finding.as_dict(check) for check, finding in found]
        click.echo(json.dumps({"healthy": healthy, "findings": findings}, indent=2))
    else:
        _print(found)
    if not healthy:
        raise SystemExit(1)


def _print(found: list[tuple[str, Finding]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)
    for check, finding in found:
        fix = Text(f"\n→ {finding.fix}", style="cyan") if finding.fix else Text()
        outcome = Text(str(finding.outcome), style=_STYLES[finding.outcome])
        table.add_row(outcome, Text(check), Text(finding.what, overflow="fold").append_text(fix))
    console = Console()
    console.print(table)
    problems = sum(finding.outcome is Outcome.PROBLEM for _, finding in found)
    console.print(f"{problems} problem{'' if problems == 1 else 's'}" if problems else "healthy")


@click.command()
@click.argument("text", metavar="TEXT|-")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text")
def explain(text: str, style: str) -> None:
    """Why FlashInfer raised the errors in TEXT (- reads them from standard input): cause, releases and remedy."""
    found = explained(sys.stdin.buffer.read().decode(errors="replace") if text == "-" else text)
    if style == "json":
        click.echo(json.dumps({"errors": [one.as_dict() for one in found]}, indent=2))
    for one in found if style == "text" else ():
        click.secho(one.error, bold=True)
        click.echo(f"  cause:    {one.cause}\n  releases: {one.releases}\n  remedy:   {one.remedy}")
    if not found:
        if style == "text":
            click.echo("No error of FlashInfer's that flashinfer-compat knows.")
        raise SystemExit(1)


@click.command()
@click.option(
    "--compare",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An older report (JSON): fail if a feature was lost since.",
)
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text")
def report(compare: Path | None, style: str) -> None:
    """What the installed FlashInfer makes of each of the facade's features. Imports FlashInfer."""
    # The facade's features, not needed by the other commands.
    from . import report as reports

    new = reports.current()
    try:
        old = reports.read(compare) if compare else None
    except CompatError as error:
        raise click.UsageError(str(error)) from error
    gone = reports.lost(old, new) if old else []
    if style == "json":
        told = (
            {**new, "compared_with": old.get("flashinfer"), "lost": [reports.as_dict(one) for one in gone]}
            if old
            else new
        )
        click.echo(json.dumps(told, indent=2))
    else:
        adapter = f" (adapter {new['adapter']}{', inferred' if new['inferred'] else ''})" if new["adapter"] else ""
        backend = ", and the reference in its place" if new.get("backend") == "reference" else ""
        click.echo(f"FlashInfer {new['flashinfer'] or 'not installed'}{adapter}{backend}")
        if "error" in new:
            click.echo(f"It cannot be imported: {new['error']}\nSee: flashinfer-compat doctor")
        if old is None:
            for feature, outcome in new["features"].items():
                click.echo(f"  {outcome:<11}  {feature}")
            click.echo("What sglang 0.5.23 and vLLM 0.33.0 look for before they use it:")
            for gate, outcome in new["gates"].items():
                click.echo(f"  {outcome:<11}  {gate}")
        for one in gone:
            click.echo(f"lost: {one.feature}: {one.before} before, {one.now} now\n  {one.remedy}")
        if old and not gone:
            click.echo(f"no feature lost since FlashInfer {old.get('flashinfer')}")
    if gone or "error" in new:
        raise SystemExit(1)

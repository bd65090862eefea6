"""``flashinfer-compat doctor``."""

from __future__ import annotations

import json

import click

from .checks import examine
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

"""``flashinfer-compat selftest``."""

from __future__ import annotations

import importlib.util
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import CompatError
from .table import written

if TYPE_CHECKING:
    from .running import Result

#: Of a table that no terminal shows.
_LOG_WIDTH = 120
_STYLES = {"right": "green", "wrong": "bold red", "failed": "bold red", "unavailable": "yellow"}


@click.command()
@click.option("--quick", is_flag=True, help="The cases that take a minute, besides what FlashInfer compiles.")
@click.option(
    "--seed", type=click.IntRange(0, (1 << 32) - 1), help="Of the inputs: what an earlier run said, to repeat it."
)
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text")
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
@click.option(
    "--plot", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write charts (PNG) there."
)
def selftest(quick: bool, seed: int | None, style: str, as_json: bool, plot: Path | None) -> None:
    """Is what FlashInfer gives through the facade right, on this machine? Each feature against plain PyTorch.

    Without FlashInfer or without a GPU the facade runs on the reference in plain PyTorch, and the first line says so.
    """
    if importlib.util.find_spec("torch") is None:
        raise CompatError("selftest needs PyTorch: pip install flashinfer-compat[cli,reference]")
    if plot:
        from . import plot as charts

        charts.check()
    # Its choice of the backend comes before anything that reads a name of FlashInfer's.
    from .setting import settle

    setting = settle()
    seed = secrets.randbits(32) if seed is None else seed
    first = f"{setting}\nseed {seed}"
    style = "json" if as_json else style
    click.echo(first, err=style == "json")

    results = _run(quick, seed, setting.device, native=not setting.because)
    if style == "json":
        told = {**setting.facts, "seed": seed, "quick": quick, "cases": [each.as_dict() for each in results]}
        click.echo(json.dumps(told, indent=1))
    else:
        _print(results)
    if plot:
        for path in charts.draw(results, first, plot):
            click.echo(str(path), err=True)
    if any(each.outcome in ("wrong", "failed") for each in results):
        raise SystemExit(1)


def _run(quick: bool, seed: int, device: Any, *, native: bool) -> list[Result]:
    from . import building, running
    from .cases import CASES

    folder = building.cache_folder() if native else None
    results = []
    for case in CASES:
        if case.quick or not quick:
            with building.told(case.name, folder):
                results.append(running.run(case, seed, device, native=native))
    return results


def _print(results: list[Result]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None)
    for heading in ("", "case", "is", "dtype"):
        table.add_column(heading)
    for heading in ("error", "tolerance", "µs", "native µs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in results:
        table.add_row(
            Text(each.outcome, style=_STYLES[each.outcome]),
            Text(each.case),
            each.support,
            each.dtype,
            "-" if each.error is None else written(each.error, each.measure),
            written(each.tolerance, each.measure),
            _time(each.facade_us),
            _time(each.native_us),
        )
    console = Console()
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    console.print(table)
    for each in results:
        if each.reason:
            console.print(Text(f"{each.case}: {each.reason}", style=_STYLES[each.outcome]), soft_wrap=True)
    counts = {outcome: sum(each.outcome == outcome for each in results) for outcome in _STYLES}
    console.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count))


def _time(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{microseconds:.1f}"

"""Charts of a selftest's results: how far from right, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import CompatError
from .case import Measure
from .running import Outcome, Result

_COLOURS = {Outcome.RIGHT: "tab:green", Outcome.WRONG: "tab:red"}


def check() -> None:
    """`CompatError` where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise CompatError(
            "--plot needs matplotlib, which is not installed: pip install flashinfer-compat[plot]"
        ) from error


def draw(results: Sequence[Result], title: str, folder: Path) -> list[Path]:
    """Write errors.png and speed.png into `folder`, which is made where it is not there; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_errors(results, title, folder / "errors.png"), _speed(results, title, folder / "speed.png")]


def _errors(results: Sequence[Result], title: str, path: Path) -> Path:
    shown = [each for each in results if each.measure == Measure.ERROR and each.error is not None]
    figure, axes = _bars([each.case for each in shown])
    # A logarithmic axis has no place for an exact answer; it gets the shortest bar.
    smallest = min((each.error for each in shown if each.error), default=1e-9) / 10
    axes.barh(
        range(len(shown)),
        [each.error or smallest for each in shown],
        color=[_COLOURS[each.outcome] for each in shown],
    )
    axes.plot([each.tolerance for each in shown], range(len(shown)), "k|", markersize=9, label="tolerance")
    axes.set_xscale("log")
    axes.set_xlabel("relative error of the worst row")
    return _written(figure, axes, title, path)


def _speed(results: Sequence[Result], title: str, path: Path) -> Path:
    shown = [each for each in results if each.facade_us is not None]
    figure, axes = _bars([each.case for each in shown])
    axes.barh(range(len(shown)), [each.facade_us for each in shown], color="tab:blue", label="facade")
    native = [(row, each.native_us) for row, each in enumerate(shown) if each.native_us is not None]
    if native:
        axes.plot(
            [time for _, time in native], [row for row, _ in native], "k|", markersize=9, label="FlashInfer's own"
        )
    axes.set_xscale("log")
    axes.set_xlabel("µs of an eager call, median")
    return _written(figure, axes, title, path)


def _bars(names: Sequence[str]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.5 + 0.22 * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.margins(y=0.01)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    return figure, axes


def _written(figure: Any, axes: Any, title: str, path: Path) -> Path:
    axes.set_title(title, fontsize=9, loc="left", wrap=True)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    return path

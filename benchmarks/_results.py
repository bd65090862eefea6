"""What the benchmarks share: medians with their spread, a Markdown table, a JSON file."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """The median of repeated measurements, and their 10th and 90th percentile."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        deciles = quantiles(values, n=10) if len(values) > 1 else [values[0]] * 9
        return cls(median(values), deciles[0], deciles[-1])

    def __str__(self) -> str:
        return f"{self.median:.1f} ({self.low:.1f} to {self.high:.1f})"


def interleaved(measure: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Sample]:
    """Each measurement once a round, so that drift of the machine meets all alike."""
    values: dict[str, list[float]] = {name: [] for name in measure}
    for _ in range(rounds):
        for name, once in measure.items():
            values[name].append(once())
    return {name: Sample.of(taken) for name, taken in values.items()}


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return made


def where() -> dict[str, Any]:
    """The releases and the machine that the figures belong to."""
    import flashinfer_compat

    facts: dict[str, Any] = {
        "flashinfer": flashinfer_compat.flashinfer_version,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    return facts


def where_on_gpu() -> dict[str, Any]:
    """`where`, with PyTorch and the GPU."""
    import torch

    return where() | {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}


def report(
    facts: Mapping[str, Any], header: Sequence[str], rows: Sequence[Sequence[Any]], json_file: Path | None
) -> None:
    """Print the facts and a Markdown table; write both as JSON where asked."""
    print(", ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n")
    cells = [[str(cell) if cell is not None else "-" for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print("\n".join(lines), end="\n\n")
    if json_file is not None:
        named = [dict(zip(header, (_plain(cell) for cell in row), strict=True)) for row in rows]
        json_file.write_text(json.dumps({**facts, "rows": named}, indent=1) + "\n", encoding="utf-8")


def ratio(value: Sample, base: Sample) -> str:
    return f"{value.median / base.median:.3f}"


def _plain(cell: Any) -> Any:
    return cell._asdict() if isinstance(cell, Sample) else cell

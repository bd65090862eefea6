"""A Markdown table of what `flashinfer-compat selftest --json` found on several releases, one file for each.

``python -m flashinfer_compat.selftest.table 0.7.1.json 0.7.4.json > docs/conformance.md``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_FACTS = ("backend", "flashinfer", "torch", "device", "seed", "cases")


def markdown(runs: Sequence[dict[str, Any]]) -> str:
    """A page: where the runs were made, and for each case what each run found, in the order of `runs`."""
    lines = ["# Conformance, release by release", "", _INTRODUCTION, ""]
    lines += _rows(
        ["", "PyTorch", "device", "seed", "right", "wrong or failed", "unavailable"],
        [
            [_name(run), run["torch"], run["device"], str(run["seed"]), *(str(count) for count in _counts(run))]
            for run in runs
        ],
    )
    by_case = [{each["case"]: each for each in run["cases"]} for run in runs]
    cases: dict[str, dict[str, Any]] = {}
    for found in by_case:
        cases = {**found, **cases}
    lines += ["", *_rows(
        ["case", "dtype", "tolerance", *(_name(run) for run in runs)],
        [
            [name, case["dtype"], _value(case["tolerance"], case), *(_cell(found.get(name)) for found in by_case)]
            for name, case in cases.items()
        ],
    )]  # fmt: skip
    return "\n".join(lines) + "\n"


def read(path: Path) -> dict[str, Any]:
    """A run, as the command wrote it; `ValueError` says what the file is not."""
    run = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(run, dict) or any(name not in run for name in _FACTS):
        raise ValueError(f"{path} is not what flashinfer-compat selftest --json writes")
    return run


def written(value: float, measure: str) -> str:
    """An error or a tolerance: a count of entries, a p-value, or a relative error."""
    if measure == "entries that differ":
        return f"{value:.0f}"
    return f"{'p ' if measure == 'p-value' else ''}{value:.1e}"


def main(paths: Sequence[str]) -> None:
    if not paths:
        raise SystemExit("usage: python -m flashinfer_compat.selftest.table RESULTS.json …")
    sys.stdout.write(markdown([read(Path(path)) for path in paths]))


_INTRODUCTION = """\
What `flashinfer-compat selftest` found. A cell has the largest error of a row, the microseconds of a call through the
facade, the ratio to FlashInfer's own call where the release has one, and what the feature is there if it is not native.
`p` is the p-value of a chi-square test, which must not be below the tolerance; where bits must be the same, the number
of entries that differ."""


def _name(run: dict[str, Any]) -> str:
    if run["backend"] == "reference":
        return "reference"
    return f"{run['flashinfer']}{' (inferred)' if run.get('inferred') else ''}"


def _counts(run: dict[str, Any]) -> tuple[int, int, int]:
    outcomes = [each["outcome"] for each in run["cases"]]
    return outcomes.count("right"), outcomes.count("wrong") + outcomes.count("failed"), outcomes.count("unavailable")


def _cell(case: dict[str, Any] | None) -> str:
    if case is None:
        return "not run"
    if case["outcome"] == "unavailable":
        return "unavailable"
    told = [f"**{case['outcome']}**"] if case["outcome"] != "right" else []
    if case["error"] is not None:
        told.append(_value(case["error"], case))
    if case["facade_us"] is not None:
        ratio = f" ({case['facade_us'] / case['native_us']:.2f}×)" if case["native_us"] else ""
        told.append(f"{case['facade_us']:.1f} µs{ratio}")
    if case["support"] != "native":
        told.append(case["support"])
    return ", ".join(told)


def _value(value: float, case: dict[str, Any]) -> str:
    return written(value, case["measure"]) + (" differ" if case["measure"] == "entries that differ" else "")


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


if __name__ == "__main__":
    main(sys.argv[1:])

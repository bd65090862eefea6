"""A run's results: one JSON document, the same as Markdown, and what changed between two."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .measuring import Options, Row

#: Benchmark, case and variant.
Key = tuple[str, str, str]
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


@dataclass
class Results:
    """What was measured, and why the rest was not: `not_run` could not, `failed` raised."""

    facts: Mapping[str, Any]
    rows: dict[str, list[Row]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """Benchmarks that failed, and results that are wrong."""
        wrong = [
            f"{name}: {row.case}, {row.variant}: {row.problem}"
            for name, rows in self.rows.items()
            for row in rows
            if row.problem
        ]
        return [f"{name}: {error}" for name, error in self.failed.items()] + wrong

    def document(self) -> dict[str, Any]:
        """As JSON."""
        results = [{"benchmark": name, **flat(row)} for name, rows in self.rows.items() for row in rows]
        return {**self.facts, "results": results, "not_run": self.not_run, "failed": self.failed}


def run(
    names: Sequence[str],
    options: Options,
    why_not: Callable[[str, Options], str],
    measure: Callable[[str, Options], list[Row]],
    *,
    facts: Mapping[str, Any],
    done: Callable[[Results], None] = lambda results: None,
) -> Results:
    """Measure what can be; `done` is called after each benchmark, so that what is measured outlives a later failure."""
    results = Results(facts)
    for name in names:
        if reason := why_not(name, options):
            results.not_run[name] = reason
        else:
            try:
                results.rows[name] = measure(name, options)
            except Exception as error:
                results.failed[name] = f"{type(error).__name__}: {error}"
        done(results)
    return results


def flat(row: Row) -> dict[str, Any]:
    return {
        "case": row.case,
        "variant": row.variant,
        "unit": row.unit,
        **row.time._asdict(),
        "ratio": row.ratio,
        "difference": row.difference,
        "against": row.against,
        "remarks": dict(row.remarks),
        "problem": row.problem,
    }


def machine() -> dict[str, Any]:
    """The releases and the machine that figures belong to."""
    import flashinfer_compat

    (version,) = re.findall(r'^version = "(.+)"$', PYPROJECT.read_text(encoding="utf-8"), re.MULTILINE)
    facts: dict[str, Any] = {
        "flashinfer_compat": version,
        "flashinfer": flashinfer_compat.flashinfer_version,
        "python": platform.python_version(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "torch": None,
        "cuda": None,
        "gpu": None,
    }
    if find_spec("torch") is not None:
        import torch

        facts |= {"torch": torch.__version__, "cuda": torch.version.cuda}
        if torch.cuda.is_available():
            facts["gpu"] = torch.cuda.get_device_name()
    return facts


def processor() -> str:
    """The processor's name, which Linux alone keeps in a file."""
    about = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", about.read_text(), re.MULTILINE) if about.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def facts_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The releases and the machine alone."""
    return {name: value for name, value in document.items() if name not in ("results", "not_run", "failed")}


def markdown(document: Mapping[str, Any]) -> str:
    """The facts, and a table of every benchmark, run or not."""
    facts = ", ".join(f"{name} {value}" for name, value in facts_of(document).items() if value is not None)
    header = ["benchmark", "case", "variant", "median (p10 to p90)", "ratio", "difference", "to", "remarks"]
    rows = [
        [
            one["benchmark"],
            one["case"],
            one["variant"],
            f"{one['median']:.1f}{spread(one)} {one['unit']}",
            *(("", "", "") if one["ratio"] is None else versus(one)),
            ", ".join(
                [*(f"{name} {value}" for name, value in one["remarks"].items()), *filter(None, [one["problem"]])]
            ),
        ]
        for one in document["results"]
    ]
    rows += [[name, f"not run: {reason}", *[""] * 6] for name, reason in document["not_run"].items()]
    rows += [[name, f"failed: {error}", *[""] * 6] for name, error in document["failed"].items()]
    return f"{facts}\n\n{table(header, rows)}"


def spread(one: Mapping[str, Any]) -> str:
    """The deciles; nothing where there was one measurement."""
    return "" if one["p10"] == one["p90"] else f" ({one['p10']:.1f} to {one['p90']:.1f})"


def versus(one: Mapping[str, Any]) -> tuple[str, str, str]:
    """Ratio, difference, and to which variant; nothing for that one itself."""
    if one["against"] == one["variant"]:
        return "", "", ""
    return f"{one['ratio']:.3f}", f"{one['difference']:+.1f}", one["against"]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def ratios(document: Mapping[str, Any]) -> dict[Key, float]:
    """Each ratio of a document, but those of a variant to itself."""
    return {
        (one["benchmark"], one["case"], one["variant"]): one["ratio"]
        for one in document["results"]
        if one["ratio"] is not None and one["against"] != one["variant"]
    }


@dataclass(frozen=True)
class Change:
    """A ratio that moved beyond the margin; `new` is None where it was not measured."""

    key: Key
    old: float
    new: float | None

    @property
    def worse(self) -> bool:
        return self.new is None or self.new > self.old

    def __str__(self) -> str:
        benchmark, case, variant = self.key
        if self.new is None:
            return f"not measured: {benchmark}: {case}, {variant} (was {self.old:.3f})"
        kind = "slower" if self.worse else "faster"
        return f"{kind}: {benchmark}: {case}, {variant}: {self.old:.3f} to {self.new:.3f}"


def changes(old: Mapping[Key, float], new: Mapping[Key, float], margin: float) -> list[Change]:
    """What moved by more than a factor of `margin`, either way."""
    moved = []
    for key, before in old.items():
        now = new.get(key)
        if now is None or now > before * margin or now < before / margin:
            moved.append(Change(key, before, now))
    return moved

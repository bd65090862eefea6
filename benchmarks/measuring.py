"""How each benchmark measures: variants in turn, medians with their spread, ratios within a round."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True)
class Options:
    """How a run is made. `quick`: fewer rounds; `fetch`: what is missing may be fetched from the package index."""

    quick: bool = False
    fetch: bool = False

    def rounds(self, usual: int) -> int:
        return max(3, usual // 4) if self.quick else usual


class Sample(NamedTuple):
    """The median of repeated measurements, and their 10th and 90th percentile."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        deciles = quantiles(values, n=10, method="inclusive") if len(values) > 1 else [values[0]] * 9
        return cls(median(values), deciles[0], deciles[-1])


@dataclass(frozen=True)
class Row:
    """One variant of one case. `problem`: what is wrong with its result, speed aside.

    `ratio` and `difference` are to the variant `against`, medians over the rounds.
    """

    case: str
    variant: str
    unit: str
    time: Sample
    against: str = ""
    ratio: float | None = None
    difference: float | None = None
    remarks: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


def interleaved(measures: Mapping[str, Callable[[], Value]], rounds: int, *, warm: int) -> dict[str, list[Value]]:
    """Each measurement once a round, so that drift of the machine meets all alike; the `warm` rounds do not count."""
    taken: dict[str, list[Value]] = {name: [] for name in measures}
    for number in range(warm + rounds):
        for name, once in measures.items():
            value = once()
            if number >= warm:
                taken[name].append(value)
    return taken


def compared(
    case: str,
    unit: str,
    taken: Mapping[str, Sequence[float]],
    against: Mapping[str, str] | None = None,
    remarks: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Row]:
    """A row for each variant, held against the first one, or against the one that `against` names."""
    first = next(iter(taken))
    rows = []
    for variant, values in taken.items():
        base = against[variant] if against else first
        pairs = list(zip(values, taken[base], strict=True))
        rows.append(
            Row(
                case,
                variant,
                unit,
                Sample.of(values),
                base,
                median(value / other for value, other in pairs),
                median(value - other for value, other in pairs),
                (remarks or {}).get(variant, {}),
            )
        )
    return rows


def call_time(
    call: Callable[[], Any],
    calls: int = 1,
    *,
    clock: Callable[[], float] = time.perf_counter,
    before: Callable[[], Any] = lambda: None,
) -> Callable[[], float]:
    """Measures a call as the mean of `calls` in a row, in microseconds by the `clock`, after `before()`."""

    def once() -> float:
        before()
        began = clock()
        for _ in range(calls):
            call()
        return (clock() - began) / calls * 1e6

    return once


class Interpreter(NamedTuple):
    """What one interpreter took from start to end, in milliseconds."""

    wall: float
    cpu: float


def interpreter(*arguments: str, bytecode: Path | None = None) -> Callable[[], Interpreter]:
    """Measures ``python arguments``.

    With a folder for `bytecode` every module's is kept there, as an installed package's is: by itself the environment
    may forbid to write any, and what is compiled in each interpreter would be measured.
    """
    environment = dict(os.environ)
    if bytecode is not None:
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(bytecode)

    def cpu_time() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def once() -> Interpreter:
        began, before = time.perf_counter(), cpu_time()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
        return Interpreter((time.perf_counter() - began) * 1000, (cpu_time() - before) * 1000)

    return once

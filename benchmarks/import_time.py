"""Wall time of importing the facade, and FlashInfer under its patch, against ``import flashinfer``, in milliseconds.

The time of an interpreter that imports nothing is taken off both. Interpreters are started in turn, so that the file
cache and the machine's load meet all alike; the first round only warms the cache.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from _results import Sample, interleaved, parser, report, where

STATEMENTS = {
    "bare interpreter": "pass",
    "flashinfer_compat": "import flashinfer_compat",
    "flashinfer": "import flashinfer",
    "flashinfer under patch()": "import flashinfer_compat; flashinfer_compat.patch(); import flashinfer",
}


def start_time(statement: str) -> Callable[[], float]:
    """Measures one interpreter from start to end, in milliseconds."""

    def once() -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True, stdout=subprocess.DEVNULL)
        return (time.perf_counter() - begin) * 1000

    return once


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=11, help="interpreters of each kind")
    args = arguments.parse_args()
    measure = {name: start_time(statement) for name, statement in STATEMENTS.items()}
    interleaved(measure, 1)  # warm
    times: dict[str, Sample] = interleaved(measure, args.rounds)
    bare, whole = times["bare interpreter"].median, times["flashinfer"].median
    rows: list[list[Any]] = []
    for name, taken in times.items():
        own = taken.median - bare
        shares = {
            "flashinfer_compat": f"1/{(whole - bare) / own:.0f}" if own > 0 else "0",
            "flashinfer under patch()": f"{own / (whole - bare):.3f}",
        }
        share = shares.get(name)
        rows.append([name, taken, f"{own:.1f}", share])
    report(where(), ("import", "ms (p10 to p90)", "ms without the interpreter", "of flashinfer's"), rows, args.json)


if __name__ == "__main__":
    main()

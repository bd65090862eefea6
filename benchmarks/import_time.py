"""Time of importing the facade, and FlashInfer under its patch, against ``import flashinfer``, in milliseconds.

Wall time, and the CPU time of all threads; what an interpreter that imports nothing takes is taken off.
Interpreters are started in turn, so that the file cache and the machine's load meet all alike.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from .measuring import Options, Row, compared, interleaved, interpreter

STATEMENTS = {
    "flashinfer": "import flashinfer",
    "flashinfer_compat": "import flashinfer_compat",
    "flashinfer under patch()": "import flashinfer_compat; flashinfer_compat.patch(); import flashinfer",
}
BARE = "bare interpreter"


def measure(options: Options) -> list[Row]:
    statements = {BARE: "pass"} | STATEMENTS
    with tempfile.TemporaryDirectory() as folder:
        measures = {name: interpreter("-c", statement, bytecode=Path(folder)) for name, statement in statements.items()}
        taken = interleaved(measures, options.rounds(11), warm=1)
    rows = []
    for clock in ("wall", "cpu"):
        times = {name: [getattr(one, clock) for one in several] for name, several in taken.items()}
        bare = times.pop(BARE)
        own = {name: [time - empty for time, empty in zip(times[name], bare, strict=True)] for name in times}
        rows += compared(f"{clock} time", "ms", own)
    return rows

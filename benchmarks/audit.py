"""CPU time and memory of ``flashinfer-compat audit`` on published engines, and its counts against those on record.

Each engine is audited for all releases in an interpreter of its own. ``python -m benchmarks.audit NAME==VERSION…`` puts
what is found in these engines on record, in ``audit_expected.json``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import engines
from .measuring import Options, Row, Sample

EXPECTED = Path(__file__).with_name("audit_expected.json")
#: Audits a folder as the command does, and says what it took.
AUDIT = """
import gc, json, re, sys, time
from pathlib import Path
gc.disable()
from flashinfer_compat.audit.audited import SUPPORTED, audit
found = audit([Path(sys.argv[1])])
# Not getrusage's, which begins with what the parent had.
memory = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
print(json.dumps({
    "written for": found.written_for, "files": found.files, "uses": found.uses, "unresolved": len(found.unresolved),
    "broken": {release: len(found.failing(release)) for release in SUPPORTED},
    "left with the facade": {release: len(found.failing(release, facade=True)) for release in SUPPORTED},
    "cpu": time.process_time(), "memory": int(memory),
}))
"""


def expected() -> dict[str, Any]:
    """What is on record of each engine, ``name==version``."""
    found: dict[str, Any] = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return found


def audited(engine: str) -> tuple[dict[str, Any], float, float]:
    """What is found in an engine, the CPU seconds and the MiB."""
    run = [sys.executable, "-c", AUDIT, str(engines.fetched(engine))]
    found = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    return found, found.pop("cpu"), found.pop("memory") / 1024


def measure(options: Options) -> list[Row]:
    rows = []
    for engine, on_record in expected().items():
        found, cpu, memory = audited(engine)
        counts = {
            name: " ".join(map(str, count.values())) if isinstance(count, dict) else count
            for name, count in found.items()
        }
        problem = "" if found == on_record else f"{found} instead of {on_record}"
        remarks = counts | {"MiB": round(memory)}
        rows.append(Row(engine, "audit", "CPU s", Sample.of([cpu]), remarks=remarks, problem=problem))
    return rows


def main(*named: str) -> None:
    record = expected() | {engine: audited(engine)[0] for engine in named}
    EXPECTED.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""CPU time and memory of ``flashinfer-compat audit`` on published engines, and its counts against those expected.

The wheels are fetched from the package index into a cache (``--cache``, .engines by default), never imported. Each
engine is audited for all releases in an interpreter of its own. Ends with 1 if a count is not the one in
``audit_expected.json``; ``--write`` writes that file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from _results import parser, report

EXPECTED = Path(__file__).with_name("audit_expected.json")
SUFFIXES = (".py", ".pyi", "METADATA", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc")
#: Engines publish wheels for certain machines; their sources are the same in all.
WHEELS = ["--python-version", "3.12", "--only-binary", ":all:"]
WHEELS += [f"--platform=manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 17)] + ["--platform=any"]
#: Audits a folder as the command does, and says what it took.
AUDIT = """
import gc, json, resource, sys
from pathlib import Path
gc.disable()
from flashinfer_compat.audit.audited import SUPPORTED, audit
found = audit([Path(sys.argv[1])])
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "written for": found.written_for, "files": found.files, "uses": found.uses, "unresolved": len(found.unresolved),
    "broken": {release: len(found.failing(release)) for release in SUPPORTED},
    "left with the facade": {release: len(found.failing(release, facade=True)) for release in SUPPORTED},
    "cpu": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss,
}))
"""


def source(engine: str, cache: Path) -> Path:
    """The engine's unpacked sources: ``name==version``."""
    folder = cache / f"{engine.replace('==', '-')}-sources"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *WHEELS, "-d", temporary, engine]
            subprocess.run(pip, check=True)
            (wheel,) = Path(temporary).glob("*.whl")
            unpacked = Path(temporary) / "source"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked, [name for name in archive.namelist() if name.endswith(SUFFIXES)])
            unpacked.rename(folder)
    return folder


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--cache", type=Path, default=Path(".engines"))
    arguments.add_argument("--write", action="store_true", help="write what is found as what is expected")
    arguments.add_argument("engines", nargs="*", metavar="NAME==VERSION", help="all of the expected ones by default")
    args = arguments.parse_args()
    expected: dict[str, Any] = json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}
    rows, differing = [], []
    for engine in args.engines or expected:
        run = [sys.executable, "-c", AUDIT, str(source(engine, args.cache))]
        found = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
        cpu, memory = found.pop("cpu"), found.pop("memory")
        if args.write:
            expected[engine] = found
        elif expected.get(engine) != found:
            differing.append(f"{engine}: {found} instead of {expected.get(engine)}")
        broken = " ".join(str(count) for count in found["broken"].values())
        left = " ".join(str(count) for count in found["left with the facade"].values())
        figures = [found[name] for name in ("written for", "files", "uses", "unresolved")]
        rows.append([engine, *figures, broken, left, f"{cpu:.1f}", f"{memory / 1024:.0f}"])
    header = ("engine", "written for", "files", "uses", "unresolved", "broken on each release", "with the facade")
    report({"python": sys.version.split()[0]}, (*header, "CPU s", "MiB"), rows, args.json)
    if args.write:
        EXPECTED.write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    print("\n".join(differing))
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()

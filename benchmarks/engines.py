"""The published engines' sources, fetched from the package index once and kept in a cache; never committed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(os.environ.get("FLASHINFER_COMPAT_ENGINES", Path(__file__).parents[1] / ".engines"))
SUFFIXES = (".py", ".pyi", "METADATA", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc")
#: Engines publish wheels for certain machines; their sources are the same in all.
WHEELS = ["--python-version", "3.12", "--only-binary", ":all:"]
WHEELS += [f"--platform=manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 17)] + ["--platform=any"]


def source_folder(engine: str) -> Path:
    """Where the sources of ``name==version`` are, or will be."""
    return CACHE / f"{engine.replace('==', '-')}-sources"


def fetched(engine: str) -> Path:
    """The folder that holds the engine's package, its sources alone."""
    folder = source_folder(engine)
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *WHEELS, "-d", temporary, engine]
            subprocess.run(pip, check=True)
            (wheel,) = Path(temporary).glob("*.whl")
            unpacked = Path(temporary) / "source"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked, [name for name in archive.namelist() if name.endswith(SUFFIXES)])
            unpacked.rename(folder)
    return folder

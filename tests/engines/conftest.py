"""The published engines' sources, fetched from the package index once and kept in a cache; never committed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("FLASHINFER_COMPAT_ENGINES", ROOT / ".engines"))
#: Each engine's release, and the FlashInfer release that it pins.
ENGINES = {"sglang": ("0.5.23", "0.7.2"), "vllm": ("0.33.0", "0.7.2.post1")}
#: Engines publish wheels for certain machines; their Python source is the same in all.
WHEELS = ["--python-version", "3.11", "--only-binary", ":all:"]
WHEELS += [f"--platform=manylinux_2_{minor}_x86_64" for minor in (39, 34, 31, 28)] + ["--platform=any"]


def engine_source(engine: str) -> Path:
    """The folder that holds the engine's package, its Python files alone."""
    release, _ = ENGINES[engine]
    folder = CACHE / f"{engine}-{release}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *WHEELS, "-d", temporary]
            subprocess.run([*pip, f"{engine}=={release}"], check=True)
            (wheel,) = Path(temporary).glob("*.whl")
            unpacked = Path(temporary) / "source"
            with zipfile.ZipFile(wheel) as archive:
                members = [name for name in archive.namelist() if name.endswith((".py", "METADATA"))]
                archive.extractall(unpacked, members)
            unpacked.rename(folder)
    return folder


@pytest.fixture(scope="session")
def sglang() -> Path:
    return engine_source("sglang")


@pytest.fixture(scope="session")
def vllm() -> Path:
    return engine_source("vllm")

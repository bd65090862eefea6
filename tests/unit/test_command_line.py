"""The command line without what it needs, in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import flashinfer_compat

ROOT = Path(flashinfer_compat.__path__[0]).parent


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_the_extra_that_is_not_installed(missing: str) -> None:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    script = f"""
import runpy, sys
sys.modules[{missing!r}] = None
sys.argv = ["flashinfer_compat", "run", "program.py"]
runpy.run_module("flashinfer_compat", run_name="__main__")
"""
    process = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 1
    assert process.stderr == f"The command line needs {missing}: pip install 'flashinfer-compat[cli]'\n"

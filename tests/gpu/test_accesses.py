"""No kernel reads or writes where it must not, on the paths that the facade emulates: compute-sanitizer's memcheck."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .accesses import CHECKED, out_of_bounds

pytestmark = pytest.mark.gpu
TESTS = Path(__file__).parents[1]
#: What the checker ends with where it has found something.
FOUND = 86


def checked(name: str) -> subprocess.CompletedProcess[str]:
    """Run a function of accesses.py under the checker; skipped where that, or the device, does not allow it."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer, of the CUDA toolkit, is not on the PATH")
    path = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sanitizer, "--tool", "memcheck", "--error-exitcode", str(FOUND), sys.executable, "-m", "gpu.accesses", name],
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "Device not supported" in done.stdout:
        pytest.skip("compute-sanitizer does not support this device")
    return done


@pytest.mark.parametrize("name", [each.__name__ for each in CHECKED])
def test_no_access_out_of_bounds(name: str) -> None:
    done = checked(name)
    assert "ERROR SUMMARY: 0 errors" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_checker_sees_one() -> None:
    done = checked(out_of_bounds.__name__)
    assert "Invalid __global__ read" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.returncode == FOUND

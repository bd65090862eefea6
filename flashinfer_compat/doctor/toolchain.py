"""What compiling a kernel needs: nvcc and ninja, found as FlashInfer's jit/cpp_ext.py finds them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .model import Finding, Machine, note, ok, problem


def nvcc(machine: Machine) -> Iterator[Finding]:
    """nvcc is there, and of the CUDA major that PyTorch was built with."""
    compiler = _nvcc(machine)
    if compiler is None:
        say = note if machine.version("flashinfer-jit-cache") else problem
        yield say(
            "no nvcc in CUDA_HOME, CUDA_PATH, on the PATH or in /usr/local/cuda: kernels cannot be compiled",
            "install the CUDA toolkit of PyTorch's CUDA and set CUDA_HOME, or install flashinfer-jit-cache",
        )
        return
    release = _release(compiler)
    cuda = machine.torch_cuda
    if release is None:
        yield problem(f"{compiler} --version does not say its release", "reinstall the CUDA toolkit")
    elif cuda and release.partition(".")[0] != cuda.partition(".")[0]:
        yield problem(
            f"{compiler} is of CUDA {release}, PyTorch of CUDA {cuda}: kernels would need another CUDA runtime",
            f"set CUDA_HOME to a toolkit of CUDA {cuda}",
        )
    else:
        yield ok(f"nvcc {release} ({compiler})")


def ninja(machine: Machine) -> Iterator[Finding]:
    """ninja is on the PATH: FlashInfer runs it by that name."""
    found = shutil.which("ninja", path=machine.variable("PATH"))
    if found:
        yield ok(f"ninja ({found})")
    elif machine.version("ninja"):
        yield problem("ninja is installed, but not on the PATH", "activate the environment, or add its bin to the PATH")
    else:
        yield problem("no ninja on the PATH: kernels cannot be compiled", "pip install ninja")


def _nvcc(machine: Machine) -> Path | None:
    named = machine.variable("FLASHINFER_NVCC")
    home = machine.variable("CUDA_HOME") or machine.variable("CUDA_PATH")
    if named or home:
        candidates = [Path(named) if named else Path(home) / "bin" / "nvcc"]
    else:
        on_path = shutil.which("nvcc", path=machine.variable("PATH"))
        candidates = [Path(on_path)] if on_path else [machine.default_cuda_home / "bin" / "nvcc"]
    return next((path for path in candidates if path.is_file()), None)


def _release(compiler: Path) -> str | None:
    try:
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"release (\d+\.\d+)", said)
    return found[1] if found else None

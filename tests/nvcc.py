"""The CUDA compiler and the include directories that FlashInfer's headers need, as an engine's JIT has them."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

import flashinfer_compat
from flashinfer_compat.selection import package_directory


def nvcc() -> Path:
    """The compiler of CUDA_HOME or of the PATH; skips where there is none."""
    home = os.environ.get("CUDA_HOME")
    found = shutil.which("nvcc", path=str(Path(home) / "bin")) if home else shutil.which("nvcc")
    if found is None:
        pytest.skip("no nvcc in CUDA_HOME or on the PATH")
    return Path(found).resolve()


def include_dirs(compiler: Path) -> list[Path]:
    """This package's headers, then FlashInfer's with its CUB, then cuRAND's; skips where those are missing."""
    package = package_directory()
    assert package is not None
    data = package / "data"
    cccl = [data / "cccl" / part for part in ("cub", "libcudacxx/include", "thrust")]
    return [*flashinfer_compat.include_dirs(), data / "include", *cccl, *_curand(compiler)]


def compile_shared(source: Path, output: Path, *, architectures: list[str], standard: int, defines: list[str]) -> None:
    """Compile `source` to a shared library for `architectures` (``"sm_90a"``); a failure shows nvcc's own words."""
    compiler = nvcc()
    codes = [f"arch={name.replace('sm', 'compute')},code={name}" for name in architectures]
    command = [
        str(compiler), f"-std=c++{standard}", "-shared", "-Xcompiler=-fPIC", str(source), "-o", str(output),
        *(f"-gencode={code}" for code in codes),
        *(f"-D{define}" for define in defines),
        *(f"-I{directory}" for directory in include_dirs(compiler)),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _curand(compiler: Path) -> list[Path]:
    if any((compiler.parent.parent / part / "curand_kernel.h").is_file() for part in ("include", "targets")):
        return []
    for name in ("nvidia-curand", "nvidia-curand-cu12"):
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        headers = [file for file in files if file.name == "curand_kernel.h"]
        if headers:
            return [Path(str(headers[0].locate())).parent]
    pytest.skip("no cuRAND headers: neither beside nvcc nor from the package nvidia-curand")

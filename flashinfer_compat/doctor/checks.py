"""The checks, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import cutlass_dsl, dependencies, distributions, jit_cache, toolchain
from .model import Finding, Machine

Check = Callable[[Machine], Iterator[Finding]]

CHECKS: dict[str, Check] = {
    "release": distributions.release,
    "duplicates": distributions.duplicates,
    "companions": distributions.companions,
    "version-check": distributions.version_check,
    "cuda-suffix": distributions.cuda_suffix,
    "python": distributions.python,
    "dependencies": dependencies.floors,
    "cutlass-dsl": cutlass_dsl.one_version,
    "stale-cache": jit_cache.stale,
    "foreign-cuda": jit_cache.foreign_cuda,
    "cubin-folder": jit_cache.cubin_folder,
    "nvcc": toolchain.nvcc,
    "ninja": toolchain.ninja,
}


def examine(machine: Machine) -> list[tuple[str, Finding]]:
    """All findings, each with its check's name."""
    return [(name, finding) for name, check in CHECKS.items() for finding in check(machine)]

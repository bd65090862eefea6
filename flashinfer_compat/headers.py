"""This package's C++ headers, for an engine's JIT include path."""

from __future__ import annotations

from pathlib import Path


def include_dirs() -> list[Path]:
    """The directories with ``flashinfer_compat/*.cuh``; they go before FlashInfer's own includes, which they need."""
    return [Path(__file__).parent / "include"]

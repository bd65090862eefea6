"""What is skipped where: `tests/contract` needs FlashInfer, `tests/gpu` a CUDA device."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# For `benchmarks`; last, so that the package under test is the installed one.
sys.path.append(str(HERE.parent))


def _has_cuda() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without FlashInfer the contract cannot be imported, so it is not collected; the report's header says so."""
    needs_flashinfer = (HERE / "contract", HERE / "gpu")
    return True if collection_path in needs_flashinfer and importlib.util.find_spec("flashinfer") is None else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sampled-ids", metavar="FILE", help="write the token ids of tests/gpu there")
    parser.addoption("--digests", metavar="FILE", help="write the digests of what the selftest's cases gave there")


def pytest_report_header() -> str:
    if importlib.util.find_spec("flashinfer") is None:
        return "flashinfer: not installed; tests/contract and tests/gpu are left out"
    import flashinfer_compat

    release = flashinfer_compat.report()
    return f"flashinfer: {release['flashinfer']} (adapter {release['adapter']})"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if any("gpu" in item.keywords for item in items) and not _has_cuda():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))

"""What the GPU tests share: a workspace, a seed, the release's name."""

from __future__ import annotations

import pytest
import torch

import flashinfer_compat

from .reference import DEVICE


@pytest.fixture(scope="session")
def workspace() -> torch.Tensor:
    """A float workspace for the largest split plan here; no two tests use it at once."""
    return torch.empty(384 << 20, dtype=torch.uint8, device=DEVICE)


@pytest.fixture
def release() -> str:
    version = flashinfer_compat.report()["adapter"]
    assert isinstance(version, str)
    return version


@pytest.fixture(autouse=True)
def seed() -> None:
    """Fresh inputs in each test, the same in each run."""
    torch.manual_seed(20260)

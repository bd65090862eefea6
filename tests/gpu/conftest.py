"""What the GPU tests share: a workspace, a seed, the release's name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(scope="session")
def sampled_ids(request: pytest.FixtureRequest) -> Iterator[dict[str, list[int]]]:
    """Case -> token ids (or a generator's state), the same on each release; --sampled-ids writes them as JSON."""
    ids: dict[str, list[int]] = {}
    yield ids
    text = json.dumps(ids, indent=0, sort_keys=True)
    path = request.config.getoption("--sampled-ids")
    if path:
        Path(path).write_text(text + "\n")
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    told(request.config, f"sampled ids of {len(ids)} cases: {digest}")


@pytest.fixture(scope="session")
def combined_digests(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Case -> SHA-256 of what a combine of fixed inputs gave, the same on each release; printed as one of them all."""
    digests: dict[str, str] = {}
    yield digests
    for ranks in sorted({name.partition(",")[0] for name in digests}):
        own = json.dumps({name: each for name, each in digests.items() if name.startswith(ranks)}, sort_keys=True)
        told(request.config, f"combined rows, {ranks}: {hashlib.sha256(own.encode()).hexdigest()[:16]}")


@pytest.fixture(scope="session")
def case_digests(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Case of the selftest -> SHA-256 of what the facade gave for fixed inputs; --digests writes them as JSON."""
    digests: dict[str, str] = {}
    yield digests
    text = json.dumps(digests, indent=0, sort_keys=True)
    path = request.config.getoption("--digests")
    if path:
        Path(path).write_text(text + "\n")
    told(request.config, f"outputs of {len(digests)} cases: {hashlib.sha256(text.encode()).hexdigest()[:16]}")


_TOLD = pytest.StashKey[list[str]]()


def told(config: pytest.Config, line: str) -> None:
    """Have `line` printed at the end: what a fixture prints is captured."""
    config.stash.setdefault(_TOLD, []).append(line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_TOLD, []):
        terminalreporter.write_line(line)

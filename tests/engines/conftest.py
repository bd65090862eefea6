"""The published engines' sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import engines

#: Each engine's release, and the FlashInfer release that it pins.
ENGINES = {"sglang": ("0.5.23", "0.7.2"), "vllm": ("0.33.0", "0.7.2.post1")}


def engine_source(engine: str) -> Path:
    """The folder that holds the engine's package, its sources alone."""
    release, _ = ENGINES[engine]
    return engines.fetched(f"{engine}=={release}")


@pytest.fixture(scope="session")
def sglang() -> Path:
    return engine_source("sglang")


@pytest.fixture(scope="session")
def vllm() -> Path:
    return engine_source("vllm")

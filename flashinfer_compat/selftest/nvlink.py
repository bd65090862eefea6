"""FlashInfer asks NVML for NVLinks that are up, and a GPU by itself may have none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def taken_to_be_up() -> Iterator[None]:
    """Within it NVML says that each link is up: for one rank, which sends nothing over them, and ranks of one GPU."""
    import pynvml

    with mock.patch.multiple(
        pynvml,
        nvmlDeviceGetNvLinkCapability=lambda device, link, capability: 1,
        nvmlDeviceGetNvLinkState=lambda device, link: pynvml.NVML_FEATURE_ENABLED,
    ):
        yield

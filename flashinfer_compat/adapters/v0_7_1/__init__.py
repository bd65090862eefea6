"""FlashInfer 0.7.1, as it differs from 0.7.2."""

from __future__ import annotations

from .. import v0_7_2
from . import attention, sampling

ADAPTER = v0_7_2.ADAPTER.older("0.7.1", attention.LINES, sampling.LINES)

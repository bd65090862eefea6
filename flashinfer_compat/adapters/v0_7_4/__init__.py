"""FlashInfer 0.7.4, the contract's own release: what the facade adds, keeps safe, and keeps from older releases."""

from __future__ import annotations

from ..model import Adapter
from . import attention, sampling

ADAPTER = Adapter.newest("0.7.4", attention.LINES, sampling.LINES)

"""FlashInfer 0.7.2.post1, as it differs from 0.7.3: the planner takes 20 arguments."""

from __future__ import annotations

from .. import v0_7_3
from . import attention

ADAPTER = v0_7_3.ADAPTER.older("0.7.2.post1", attention.LINES)

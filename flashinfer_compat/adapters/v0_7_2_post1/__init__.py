"""FlashInfer 0.7.2.post1, as it differs from 0.7.3: 20 planner arguments, the older all-to-all."""

from __future__ import annotations

from .. import v0_7_3
from . import attention, comm, moe_ep

ADAPTER = v0_7_3.ADAPTER.older("0.7.2.post1", attention.LINES, comm.LINES, moe_ep.LINES)

"""FlashInfer 0.7.3, inferred: it is on no index.

Stated upstream: 21 planner arguments, the verify kernel's state, the private counter helper gone. Each line here is a
feature of 0.7.4 that 0.7.2.post1 lacks; the installed signature settles whether 0.7.3 has it.
"""

from __future__ import annotations

from .. import v0_7_4
from . import attention, sampling

ADAPTER = v0_7_4.ADAPTER.older("0.7.3", attention.LINES, sampling.LINES, inferred=True)

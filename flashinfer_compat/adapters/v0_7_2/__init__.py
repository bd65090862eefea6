"""FlashInfer 0.7.2, as it differs from 0.7.2.post1: plan(uniform_q_len=) is there in C++ alone (#6144)."""

from __future__ import annotations

from .. import v0_7_2_post1
from . import attention

ADAPTER = v0_7_2_post1.ADAPTER.older("0.7.2", attention.LINES)

"""The cases, a file for each domain; the command and the GPU tests run the same."""

from __future__ import annotations

from ..case import Case
from . import attention, cascade, elementwise, expert_parallel, mla, page, sampling

CASES: tuple[Case, ...] = (
    *attention.CASES,
    *mla.CASES,
    *cascade.CASES,
    *page.CASES,
    *elementwise.CASES,
    *sampling.CASES,
    *expert_parallel.CASES,
)

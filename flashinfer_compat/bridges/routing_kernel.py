"""`moe_alltoall.routable` as one kernel; imported only where there is Triton."""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl

_TOKENS = 32


@triton.jit(do_not_specialize=["ids", "routed", "tokens", "experts", "home"])  # type: ignore[untyped-decorator]
def _route(ids, routed, tokens, experts, home, TOP_K: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < tokens) & (column < TOP_K)
    at = row * TOP_K + column
    given = tl.load(ids + at, mask=inside, other=-1)
    valid = (given >= 0) & (given < experts)
    other = tl.max(tl.where(valid, given, -1), 1)[:, None]
    other = tl.where(other < 0, home, other)
    tl.store(routed + at, tl.where(valid, given, other), mask=inside)


@functools.cache
def _compiled(top_k: int, device: int) -> tuple[Any, int]:
    """The kernel for a top_k, loaded on the current device; launched so, it saves the host 20 µs of Triton's jit."""
    columns = triton.next_power_of_2(top_k)
    kernel = _route.warmup(
        torch.int32, torch.int32, 0, 0, 0, TOP_K=top_k, COLUMNS=columns, ROWS=_TOKENS, grid=(1,), num_warps=4
    )
    return kernel, columns


def route(ids: torch.Tensor, experts: int, home: int) -> torch.Tensor:
    """`ids`, ``[tokens, top_k]`` int32, those out of range replaced by the row's largest, or by `home`.

    Compiled once for each top_k: nothing else is specialized, so that a call in a graph's capture compiles nothing.
    """
    tokens, top_k = ids.shape
    ids = ids.contiguous()
    routed = torch.empty_like(ids)
    kernel, columns = _compiled(top_k, ids.get_device())
    kernel[(-(-tokens // _TOKENS), 1, 1)](ids, routed, tokens, experts, home, top_k, columns, _TOKENS)
    return routed

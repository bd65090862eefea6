"""`moe_alltoall.routable` as one kernel; imported only where there is Triton."""

from __future__ import annotations

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


def route(ids: torch.Tensor, experts: int, home: int) -> torch.Tensor:
    """`ids`, ``[tokens, top_k]`` int32, those out of range replaced by the row's largest, or by `home`.

    Compiled once for each top_k: nothing else is specialized, so that a call in a graph's capture compiles nothing.
    """
    tokens, top_k = ids.shape
    routed = torch.empty_like(ids)
    _route[(max(1, triton.cdiv(tokens, _TOKENS)),)](
        ids,
        routed,
        tokens,
        experts,
        home,
        TOP_K=top_k,
        COLUMNS=triton.next_power_of_2(top_k),
        ROWS=_TOKENS,
        num_warps=1,
    )
    return routed

"""Attention written out in float64 loops over plain numbers: what the reference is held against."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

#: Whether query row i of `rows` sees token j of `kv_len`.
Sees = Callable[[int, int, int, int], bool]


def full(i: int, j: int, rows: int, kv_len: int) -> bool:
    return True


def causal(i: int, j: int, rows: int, kv_len: int) -> bool:
    return j <= kv_len - rows + i


def within(left: int, sees: Sees = causal) -> Sees:
    return lambda i, j, rows, kv_len: sees(i, j, rows, kv_len) and j >= kv_len - rows + i - left


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sees: Sees = full,
    *,
    scale: float | None = None,
    cap: float = 0.0,
    sinks: list[float] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [rows, heads, dim] and base-2 log-sum-exp [rows, heads] of one request, all float64."""
    rows, heads, dim = q.shape
    kv_len, kv_heads, value_dim = v.shape
    scale = 1 / math.sqrt(dim) if scale is None else scale
    out = torch.zeros(rows, heads, value_dim, dtype=torch.float64)
    lse = torch.full((rows, heads), -math.inf, dtype=torch.float64)
    q, k, v = q.double(), k.double(), v.double()
    for i in range(rows):
        for head in range(heads):
            kv_head = head * kv_heads // heads
            terms = []
            for j in range(kv_len):
                if sees(i, j, rows, kv_len):
                    logit = scale * float(q[i, head] @ k[j, kv_head])
                    terms.append((cap * math.tanh(logit / cap) if cap else logit, v[j, kv_head]))
            if sinks is not None:
                terms.append((sinks[head], torch.zeros(value_dim, dtype=torch.float64)))
            if terms:
                total = sum(math.exp(logit) for logit, _ in terms)
                out[i, head] = sum(math.exp(logit) / total * value for logit, value in terms)  # type: ignore[assignment]
                lse[i, head] = math.log2(total)
    return out, lse

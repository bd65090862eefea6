"""Attention of one request, its keys and values gathered: products, mask, softmax, sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch

from .precision import wide
from .rotation import frequencies, rotated

#: A scale: a number, or a tensor of one.
Scale: TypeAlias = "float | torch.Tensor"


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """Rotary embedding inside attention (``pos_encoding_mode="ROPE_LLAMA"``): positions are those in the KV."""

    scale: float
    theta: float


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What ``plan`` was told of the attention itself.

    `soft_cap` 0 and `window_left` below 0 stand for none. `sm_scale` None is 1 / sqrt(query-key dim).
    """

    sm_scale: float | None = None
    soft_cap: float = 0.0
    causal: bool = False
    window_left: int = -1
    rotation: Rotation | None = None


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kind: Kind,
    *,
    scale: Scale = 1.0,
    mask: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of the rows `q` over the keys and values of their request, whose last token the last row is.

    Args:
        q: (rows, heads, query-key dim); k: (kv_len, kv_heads, query-key dim); v: (kv_len, kv_heads, value dim). Any
            floating dtype; `heads` is a multiple of `kv_heads`.
        scale: multiplies the logits besides ``kind.sm_scale`` (the scales of quantised queries and keys).
        mask: (rows, kv_len), bool, what a row sees; takes the place of ``kind.causal``.
        sinks: (heads,), logits of a token without value that every row sees.

    Returns the output (rows, heads, value dim) and the log-sum-exp in base 2 (rows, heads), both as wide as they were
    computed. A row that sees nothing has 0 and -inf.
    """
    rows, heads, dim = q.shape
    kv_len, kv_heads, value_dim = v.shape
    if kind.rotation is not None:
        q, k = _rotated(q, k, kind.rotation)
    grouped = wide(q).view(rows, kv_heads, heads // kv_heads, dim)
    sm_scale = dim**-0.5 if kind.sm_scale is None else kind.sm_scale
    logits = torch.einsum("qhgd,khd->hgqk", grouped, wide(k)) * (sm_scale * scale)
    if kind.soft_cap > 0:
        logits = kind.soft_cap * torch.tanh(logits / kind.soft_cap)
    logits = logits.masked_fill(~visible(rows, kv_len, kind, mask, q.device), -math.inf)
    sink = None if sinks is None else wide(sinks).view(kv_heads, -1, 1).expand(-1, -1, rows)
    largest = _largest(logits, sink)
    weights = torch.exp(logits - largest.unsqueeze(-1))
    total = weights.sum(dim=-1)
    if sink is not None:
        total = total + torch.exp(sink - largest)
    out = torch.einsum("hgqk,khd->qhgd", weights, wide(v)) / _by_row(total).clamp(min=_smallest(total)).unsqueeze(-1)
    lse = _by_row(torch.log2(total) + largest * math.log2(math.e))
    return out.reshape(rows, heads, value_dim), lse.reshape(rows, heads)


def visible(rows: int, kv_len: int, kind: Kind, mask: torch.Tensor | None, device: torch.device | str) -> torch.Tensor:
    """What each row sees of the KV, (rows, kv_len), bool: `mask` or the causal half, and of it the window."""
    behind = torch.arange(kv_len, device=device) - torch.arange(kv_len - rows, kv_len, device=device).unsqueeze(1)
    seen = torch.ones_like(behind, dtype=torch.bool)
    if mask is not None:
        seen = mask.to(device)
    elif kind.causal:
        seen = behind <= 0
    if kind.window_left >= 0:
        seen = seen & (behind >= -kind.window_left)
    return seen


def _largest(logits: torch.Tensor, sink: torch.Tensor | None) -> torch.Tensor:
    """The largest logit of each row, 0 where there is none: what the exponents are taken relative to."""
    none = logits.new_full((*logits.shape[:-1], 1), -math.inf)
    largest = torch.cat([logits, none], dim=-1).amax(dim=-1)
    if sink is not None:
        largest = torch.maximum(largest, sink)
    return largest.masked_fill(largest == -math.inf, 0.0)


def _by_row(per_head: torch.Tensor) -> torch.Tensor:
    """(kv_heads, group, rows) -> (rows, kv_heads, group)."""
    return per_head.permute(2, 0, 1)


def _smallest(values: torch.Tensor) -> float:
    return float(torch.finfo(values.dtype).tiny)


def _rotated(q: torch.Tensor, k: torch.Tensor, rotation: Rotation) -> tuple[torch.Tensor, torch.Tensor]:
    last = k.size(0)
    positions = torch.arange(last, device=k.device)
    inverse = frequencies(q.size(-1), rotation.scale, rotation.theta, q.device)
    # Row i of the query is the token at last - rows + i.
    rows = torch.arange(last - q.size(0), last, device=q.device)
    return rotated(wide(q), rows, inverse), rotated(wide(k), positions, inverse)

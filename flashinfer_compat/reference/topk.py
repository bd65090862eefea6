"""`flashinfer.topk`: the largest entries of each row."""

from __future__ import annotations

import torch

from ..errors import InvalidArgument


def top_k(
    input: torch.Tensor,
    k: int,
    sorted: bool = False,
    deterministic: bool = False,
    tie_break: int = 0,
    dsa_graph_safe: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The `k` largest of each row of `input` (rows, n): values (rows, k) of its dtype, and indices (rows, k), int64.

    Of equal values at the end those of the smallest indices are taken, with ``tie_break=2`` of the largest. They are
    always in descending order.
    """
    if input.ndim != 2 or not 0 <= k <= input.size(1):
        raise InvalidArgument(f"input has shape {tuple(input.shape)} and k is {k}; it must be (rows, n) with k <= n")
    if tie_break == 2:
        values, indices = top_k(input.flip(1), k)
        return values, input.size(1) - 1 - indices
    ordered, indices = torch.sort(input, dim=1, descending=True, stable=True)
    return ordered[:, :k].contiguous(), indices[:, :k].contiguous()

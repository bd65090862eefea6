"""Quantizers: results into a caller's own tensor."""

from __future__ import annotations

import torch

from ..errors import InvalidArgument


def into(result: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """`out` with the values of `result`, a flat tensor, as 0.7.2.post1 writes them; `result` where there is none."""
    if out is None:
        return result
    if out.shape != result.shape or out.dtype != result.dtype or out.device != result.device:
        raise InvalidArgument(
            f"out is {tuple(out.shape)} of {out.dtype} on {out.device}; the scales are {tuple(result.shape)} of "
            f"{result.dtype} on {result.device}"
        )
    if not out.is_contiguous():
        raise InvalidArgument("out must be contiguous")
    return out.copy_(result)

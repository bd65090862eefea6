"""In which floating type the reference adds up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_accumulation: ContextVar[torch.dtype] = ContextVar("accumulation", default=torch.float32)


@contextmanager
def accumulate_in(dtype: torch.dtype) -> Iterator[None]:
    """Within it the reference computes in `dtype`: torch.float64, or torch.float32 as it does by itself.

    Outputs keep the types of the contract. Plan with ``o_data_type=torch.float64`` for an output that is not rounded.
    """
    token = _accumulation.set(dtype)
    try:
        yield
    finally:
        _accumulation.reset(token)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in the type that the reference adds up in."""
    return tensor.to(_accumulation.get())

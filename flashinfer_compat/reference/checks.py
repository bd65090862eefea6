"""What the reference refuses: arguments that no release takes, and what only FlashInfer's kernels have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from ..errors import FeatureUnavailable, InvalidArgument, UnsupportedArgument, UnsupportedCombination

LAYOUTS = ("NHD", "HND")


class Lacking:
    """Base of the reference's wrappers: an attribute that is FlashInfer's alone is refused by its name."""

    def __getattr__(self, name: str) -> NoReturn:
        raise FeatureUnavailable(
            f"{type(self).__name__}.{name}: FlashInfer has it, the reference in plain PyTorch has not"
        )


def refuse(function: str, **arguments: Any) -> None:
    """Raise `UnsupportedArgument` for the first of `arguments` that is given: the reference has nothing to match it."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise UnsupportedArgument(
                f"{function}({name}=): FlashInfer has it, the reference in plain PyTorch has not. Leave it out, or run "
                "on FlashInfer."
            )


def check_layout(kv_layout: str) -> None:
    if kv_layout not in LAYOUTS:
        raise KeyError(f"Invalid kv_layout {kv_layout}")  # the type that FlashInfer raises


def dtype_of(given: str | torch.dtype) -> torch.dtype:
    """A dtype given as such or by its name in torch."""
    resolved = getattr(torch, given, None) if isinstance(given, str) else given
    if not isinstance(resolved, torch.dtype):
        raise TypeError(f"{given!r} is no dtype of PyTorch's")
    return resolved


def is_fp8(dtype: torch.dtype) -> bool:
    return dtype in (torch.float8_e4m3fn, torch.float8_e5m2)


def check_tensor(
    name: str, tensor: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> None:
    if tuple(tensor.shape) != tuple(shape) or tensor.dtype != dtype or tensor.device != device:
        raise InvalidArgument(
            f"{name} must be {tuple(shape)} of {dtype} on {device}; it is {tuple(tensor.shape)} of {tensor.dtype} on "
            f"{tensor.device}"
        )


def check_planned_dtypes(q: torch.Tensor, k: torch.Tensor, q_dtype: torch.dtype, kv_dtype: torch.dtype) -> None:
    for name, given, planned in (("q", q.dtype, q_dtype), ("k", k.dtype, kv_dtype)):
        if given != planned:
            raise InvalidArgument(f"{name} is {given}, but plan() was told {planned}")


def check_not_captured(tensor: torch.Tensor) -> None:
    """The reference reads lengths on the host, so a replay would compute with those of the capture."""
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        raise UnsupportedCombination(
            "The reference in plain PyTorch cannot be captured in a CUDA graph. Run it eagerly."
        )

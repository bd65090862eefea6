"""What goes with each distribution (top_k, top_p, min_p, a temperature) and with each output row (indices).

FlashInfer reads these tensors through raw pointers. It checks the length of a threshold, but not its device, and of
`indices` neither shape nor device (csrc/sampling.cu): what is wrong there is read past its end.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import torch

from ..errors import InvalidArgument, UnsupportedArgument

_INDEX_DTYPES = (torch.int32, torch.int64)
_INT32 = torch.iinfo(torch.int32)
_UINT32_MAX = (1 << 32) - 1


def check_rows(probs: torch.Tensor, indices: torch.Tensor | None) -> None:
    """`probs` (distributions, vocabulary), floating; `indices` (output rows,), int32 or int64, on its device."""
    if probs.ndim != 2 or not probs.is_floating_point():
        raise InvalidArgument(
            f"The distributions have shape {tuple(probs.shape)} and {probs.dtype}; they must be (rows, vocabulary) and "
            "floating"
        )
    if probs.numel() > _UINT32_MAX:
        raise InvalidArgument(f"{probs.size(0)} distributions of {probs.size(1)}: the kernels count entries in 32 bits")
    if indices is None:
        return
    if indices.ndim != 1 or indices.dtype not in _INDEX_DTYPES:
        raise InvalidArgument(
            f"indices have shape {tuple(indices.shape)} and {indices.dtype}; they must be (output rows,) of int32 or "
            "int64"
        )
    if indices.device != probs.device:
        raise InvalidArgument(f"indices are on {indices.device}, the distributions are on {probs.device}")


def check_top_k(probs: torch.Tensor, top_k: Any) -> None:
    """An integer in int32, or integers, one for each distribution; below 0 there is no top-k, 0 keeps the maximum."""
    if isinstance(top_k, torch.Tensor):
        _check_tensor("top_k", top_k, probs)
        if top_k.is_floating_point() or top_k.dtype == torch.bool:
            raise InvalidArgument(f"top_k is {top_k.dtype}; it must be an integer type")
    elif not isinstance(top_k, Integral):
        raise UnsupportedArgument(f"top_k is {top_k!r}; it must be an int or a tensor")
    elif not _INT32.min <= int(top_k) <= _INT32.max:
        raise InvalidArgument(f"top_k is {top_k}; the kernels take 32 bits of it")


def check_top_p(probs: torch.Tensor, top_p: Any) -> None:
    """A number in [0, 1], or one for each distribution."""
    _check_probability("top_p", probs, top_p)


def check_min_p(probs: torch.Tensor, min_p: Any) -> None:
    """A number in [0, 1], or one for each distribution."""
    _check_probability("min_p", probs, min_p)


def check_top_k_max(top_k_max: int | None) -> None:
    if top_k_max is not None and not isinstance(top_k_max, int):
        raise UnsupportedArgument(f"top_k_max is {top_k_max!r}; it must be an int, known without asking the device")


def check_drafts(
    draft_probs: torch.Tensor,
    draft_token_ids: torch.Tensor,
    target_probs: torch.Tensor,
    maybe_output_accepted_token_num: torch.Tensor | None,
    maybe_output_emitted_draft_token_num: torch.Tensor | None,
) -> None:
    """Drafts (b, n, vocabulary), tokens (b, n), targets (b, n + 1, vocabulary); counters (b,), dense int32.

    FlashInfer does not check n of the tokens, and counts into a copy where a counter is of another type (sampling.py).
    """
    if draft_probs.ndim != 3:
        raise InvalidArgument(f"draft_probs have shape {tuple(draft_probs.shape)}; they must be (b, n, vocabulary)")
    b, n, vocabulary = draft_probs.shape
    for name, tensor, shape in (
        ("draft_token_ids", draft_token_ids, (b, n)),
        ("target_probs", target_probs, (b, n + 1, vocabulary)),
        ("maybe_output_accepted_token_num", maybe_output_accepted_token_num, (b,)),
        ("maybe_output_emitted_draft_token_num", maybe_output_emitted_draft_token_num, (b,)),
    ):
        if tensor is None:
            continue
        if tensor.shape != shape:
            raise InvalidArgument(f"{name} has shape {tuple(tensor.shape)}; it must be {shape}")
        if tensor.device != draft_probs.device:
            raise InvalidArgument(f"{name} is on {tensor.device}, draft_probs are on {draft_probs.device}")
        if name.startswith("maybe") and (tensor.dtype != torch.int32 or not tensor.is_contiguous()):
            raise InvalidArgument(f"{name} must be contiguous and of int32: it is counted up in place")


def top_k_by_output_row(top_k: Any, indices: torch.Tensor | None) -> Any:
    """`top_k` laid out for the kernel of 0.7.1, which reads it by output row (sampling.cuh, TopKSamplingFromProb)."""
    return _by_output_row(top_k, indices, torch.int32)


def min_p_by_output_row(min_p: Any, indices: torch.Tensor | None) -> Any:
    """`min_p` laid out for the kernel of 0.7.1, which reads it by output row (sampling.cuh, MinPSamplingFromProb)."""
    return _by_output_row(min_p, indices, torch.float32)


def int32_indices(top_k: Any, indices: torch.Tensor | None) -> tuple[torch.Tensor | None, bool]:
    """`indices` as int32 where `top_k` is a tensor, and whether they were of int64.

    Before 0.7.4 the wrapper makes `top_k` int32, and the kernel reads it as it does `indices` (sampling.cuh, IdType):
    two thresholds become one of int64, and the reads go past the end.
    """
    if indices is not None and indices.dtype == torch.int64 and isinstance(top_k, torch.Tensor):
        return indices.int(), True
    return indices, False


def int64_samples(result: Any, widened: bool) -> Any:
    """Samples of the type that the caller's `indices` had."""
    if not widened:
        return result
    if isinstance(result, tuple):
        return result[0].long(), *result[1:]
    return result.long()


def no_pdl_with_temperatures(temperature: Any, enable_pdl: bool | None) -> bool | None:
    """No programmatic dependent launch with a temperature for each row, which 0.7.1 reads before it waits for it."""
    return False if isinstance(temperature, torch.Tensor) else enable_pdl


def _by_output_row(threshold: Any, indices: torch.Tensor | None, dtype: torch.dtype) -> Any:
    if indices is None or not isinstance(threshold, torch.Tensor):
        return threshold
    distributions, rows = threshold.size(0), indices.size(0)
    laid_out = torch.empty(max(distributions, rows), dtype=dtype, device=threshold.device)
    torch.index_select(threshold.to(dtype), 0, indices, out=laid_out[:rows])
    # The binding wants as many as there are distributions; the kernel goes on to read all rows of the same storage.
    return laid_out[:distributions]


def _check_probability(name: str, probs: torch.Tensor, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        _check_tensor(name, value, probs)
    elif not isinstance(value, Real):
        raise UnsupportedArgument(f"{name} is {value!r}; it must be a number or a tensor")
    elif not 0 <= float(value) <= 1:
        raise InvalidArgument(f"{name} is {value}; it must lie in [0, 1]")


def _check_tensor(name: str, value: torch.Tensor, probs: torch.Tensor) -> None:
    if value.ndim != 1 or value.size(0) != probs.size(0):
        raise InvalidArgument(
            f"{name} has shape {tuple(value.shape)}; it must be ({probs.size(0)},), one for each distribution"
        )
    if value.device != probs.device:
        raise InvalidArgument(f"{name} is on {value.device}, the distributions are on {probs.device}")

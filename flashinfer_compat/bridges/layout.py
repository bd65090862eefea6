"""Arguments in the shape that the planners and kernels of a release need."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidPlan, UnsupportedCombination


def host_indptr(
    qo_indptr: Tensor, kv_indptr: Tensor, qo_indptr_cpu: Tensor | None, kv_indptr_cpu: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The indptr tensors to plan a ragged wrapper with where it takes no host copies of its own.

    A CPU tensor is a valid indptr on every release, and one already on the host costs no device-to-host copy. Both are
    used or neither, since a custom mask needs them on one device; with one alone the plan reads both back as usual.
    """
    for name, indptr, host in (("qo_indptr", qo_indptr, qo_indptr_cpu), ("kv_indptr", kv_indptr, kv_indptr_cpu)):
        if host is not None and not (
            host.device.type == "cpu"
            and host.shape == indptr.shape
            and host.dtype == indptr.dtype
            and host.dtype in (torch.int32, torch.int64)
        ):
            raise InvalidPlan(
                f"{name}_cpu must be a CPU tensor of {name}'s shape and integer dtype, {tuple(indptr.shape)} "
                f"{indptr.dtype}; it is {tuple(host.shape)} {host.dtype} on {host.device}."
            )
    if qo_indptr_cpu is None or kv_indptr_cpu is None:
        return qo_indptr, kv_indptr
    return qo_indptr_cpu.contiguous(), kv_indptr_cpu.contiguous()


def sequence_kv_bound(self: Any, max_sequence_kv: int | None) -> int | None:
    """0.7.1 ends in UnboundLocalError with a bound on any backend but cuDNN, which alone reads it."""
    return max_sequence_kv if self._backend == "cudnn" else None


def reserve_total_num_rows(self: Any, max_total_num_rows: int | None, use_cuda_graph: bool) -> None:
    """plan() fills the capacity only while it is None, so setting it first is what 0.7.4's constructor does."""
    if max_total_num_rows is None:
        return
    if not use_cuda_graph:
        raise InvalidPlan("max_total_num_rows requires use_cuda_graph=True.")
    if not isinstance(max_total_num_rows, int) or max_total_num_rows < 0:
        raise InvalidPlan(f"max_total_num_rows must be a nonnegative integer; it is {max_total_num_rows!r}.")
    self._max_total_num_rows = max_total_num_rows


def refuse_fp8_scales(k: Tensor, kv_cache_sf: Any) -> None:
    """0.7.4 reads kv_cache_sf of an fp8 KV cache as scales per token and head; before, it means NVFP4 block scales."""
    if kv_cache_sf is not None and k.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        raise UnsupportedCombination(
            "single_prefill_with_kv_cache(kv_cache_sf=) with an fp8 KV cache: FlashInfer 0.7.4 and later have it. "
            "Scale the output or use a 16-bit KV cache."
        )

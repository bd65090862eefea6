"""The decode wrapper's opaque ``plan(*deprecated_positional_args, **kwargs)``, with its keywords spelled out."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ..errors import UnsupportedArgument
from .planner import PlannedWrapper

_DTYPE = (str, torch.dtype, type(None))
_NUMBER = (float, int, type(None))
#: What each position after page_size takes, in the order of FlashInfer's own table (decode.py).
POSITIONAL_TAIL: dict[str, tuple[type, ...]] = {
    "pos_encoding_mode": (str,),
    "window_left": (int,),
    "logits_soft_cap": _NUMBER,
    "q_data_type": _DTYPE,
    "kv_data_type": _DTYPE,
    "o_data_type": _DTYPE,
    "data_type": _DTYPE,
    "sm_scale": _NUMBER,
    "rope_scale": _NUMBER,
    "rope_theta": _NUMBER,
    "non_blocking": (bool,),
    "block_tables": (torch.Tensor, type(None)),
    "seq_lens": (torch.Tensor, type(None)),
    "fixed_split_size": (int, type(None)),
    "disable_split_kv": (bool,),
    "q_len_per_req": (int,),
}


def merged_tail(tail: tuple[Any, ...], given: tuple[Any, ...], defaults: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of `POSITIONAL_TAIL`'s parameters, `tail` over `given`, each checked against the one it lands in.

    A value that slipped into another parameter raises: plan() has ``o_data_type`` where fast_decode_plan() has
    ``data_type``, and each release before 0.7 had another order.
    """
    by_keyword = f"Pass everything after page_size by keyword, in any order: {', '.join(POSITIONAL_TAIL)}."
    if len(tail) > len(POSITIONAL_TAIL):
        raise UnsupportedArgument(f"plan() got {len(tail)} positional arguments after page_size. {by_keyword}")
    for (name, types), value, keyword, default in zip(POSITIONAL_TAIL.items(), tail, given, defaults, strict=False):
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise UnsupportedArgument(f"plan() has {name} where {value!r} was passed by position. {by_keyword}")
        if keyword is not default:
            raise UnsupportedArgument(f"plan() got {name} both by position and by keyword.")
    warnings.warn(
        "positional arguments of BatchDecodeWithPagedKVCacheWrapper.plan() after page_size are deprecated. "
        + by_keyword,
        DeprecationWarning,
        stacklevel=3,
    )
    return tail + given[len(tail) :]


class WithResolvedBackend(PlannedWrapper):
    """`resolved_backend` for a release before 0.7.2, where "auto" never takes another backend later on."""

    _backend: str

    @property
    def resolved_backend(self) -> str:
        """The backend of the last plan."""
        return self._backend


def decode_wrapper(native: type) -> type:
    """The mixin for `native`."""
    return PlannedWrapper if hasattr(native, "resolved_backend") else WithResolvedBackend


def split_size_for_cuda_cores(self: Any, fixed_split_size: int | None) -> int | None:
    """CUDA-core decode refuses every fixed split, -1 included, which elsewhere means none (decode.py, _plan_impl)."""
    return None if fixed_split_size == -1 and not self.use_tensor_cores else fixed_split_size

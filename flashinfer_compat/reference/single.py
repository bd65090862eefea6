"""Attention of one request whose keys and values lie side by side."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from .batch import check_backend, deliver, kind_of, product
from .bits import unpacked_bits
from .checks import check_layout, refuse
from .dense import attend


def single_prefill_with_kv_cache(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale_q: torch.Tensor | None = None,
    scale_k: torch.Tensor | None = None,
    scale_v: torch.Tensor | None = None,
    o_dtype: torch.dtype | None = None,
    custom_mask: torch.Tensor | None = None,
    packed_custom_mask: torch.Tensor | None = None,
    causal: bool = False,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_fp16_qk_reduction: bool = False,
    sm_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    backend: str = "auto",
    return_lse: bool = False,
    kv_cache_sf: tuple[torch.Tensor, torch.Tensor] | None = None,
    k_scale: float | None = None,
    v_scale: float | None = None,
) -> Any:
    """One request: `q` (rows, heads, dim), `k` and `v` (kv_len, kv_heads, dim), HND: heads in front of tokens.

    `custom_mask` (rows, kv_len), bool, or its bits `packed_custom_mask`, takes the place of `causal`. With `return_lse`
    also the base-2 log-sum-exp (rows, heads), float32. Scales per head (`scale_q` …) and `kv_cache_sf` raise
    `UnsupportedArgument`.
    """
    check_layout(kv_layout)
    check_backend(backend)
    refuse("single_prefill_with_kv_cache", scale_q=scale_q, scale_k=scale_k, scale_v=scale_v, kv_cache_sf=kv_cache_sf)
    kind = kind_of(
        causal=causal, pos_encoding_mode=pos_encoding_mode, sm_scale=sm_scale, window_left=window_left,
        logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta,
    )  # fmt: skip
    keys, values = (part if kv_layout == "NHD" else part.transpose(0, 1) for part in (k, v))
    mask, shape = custom_mask, (q.size(0), keys.size(0))
    if packed_custom_mask is not None:
        mask = unpacked_bits(packed_custom_mask, shape[0] * shape[1])
    mask = None if mask is None else mask.view(shape).bool()
    out, lse = attend(q, keys, values, kind, scale=product(k_scale), mask=mask)
    return deliver(
        out * product(v_scale), lse, into=None, lse_into=None, dtype=o_dtype or q.dtype, return_lse=return_lse
    )


single_prefill_with_kv_cache_return_lse = partial(single_prefill_with_kv_cache, return_lse=True)


def single_decode_with_kv_cache(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kv_layout: str = "NHD",
    pos_encoding_mode: str = "NONE",
    use_tensor_cores: bool = False,
    q_scale: float | None = None,
    k_scale: float | None = None,
    v_scale: float | None = None,
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    return_lse: bool = False,
) -> Any:
    """One token, `q` (heads, dim), over `k` and `v` (kv_len, kv_heads, dim), HND: heads in front of tokens.

    With `return_lse` also the base-2 log-sum-exp (heads,), float32.
    """
    check_layout(kv_layout)
    kind = kind_of(
        causal=False, pos_encoding_mode=pos_encoding_mode, sm_scale=sm_scale, window_left=window_left,
        logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta,
    )  # fmt: skip
    keys, values = (part if kv_layout == "NHD" else part.transpose(0, 1) for part in (k, v))
    out, lse = attend(q.unsqueeze(0), keys, values, kind, scale=product(q_scale, k_scale))
    return deliver((out * product(v_scale))[0], lse[0], into=None, lse_into=None, dtype=q.dtype, return_lse=return_lse)

"""`flashinfer.rope`: rotary embeddings of queries and keys, their cosines and sines computed or from a cache."""

from __future__ import annotations

import math

import torch

from ..errors import InvalidArgument
from .precision import wide
from .rotation import frequencies, rotated, turned


def apply_rope(
    q: torch.Tensor,
    k: torch.Tensor,
    indptr: torch.Tensor,
    offsets: torch.Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`q` (rows, heads, dim) and `k` (rows, kv heads, dim) turned; row i of request b is at ``offsets[b] + i``.

    `indptr` (requests + 1,) and `offsets` (requests,) are integers. Of a head the first `rotary_dim` entries turn, in
    pairs of one half with the other, or of neighbours if `interleave`. Outputs have the inputs' dtypes.
    """
    inverse = frequencies(rotary_dim or q.size(-1), rope_scale, rope_theta, q.device)
    return _both(q, k, _positions(indptr, offsets, q.size(0)), inverse, interleave)


def apply_rope_inplace(
    q: torch.Tensor,
    k: torch.Tensor,
    indptr: torch.Tensor,
    offsets: torch.Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> None:
    """`apply_rope` into `q` and `k`."""
    _into(q, k, apply_rope(q, k, indptr, offsets, rotary_dim, interleave, rope_scale, rope_theta))


def apply_rope_pos_ids(
    q: torch.Tensor,
    k: torch.Tensor,
    pos_ids: torch.Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`apply_rope` with the position of each row, `pos_ids` (rows,)."""
    inverse = frequencies(rotary_dim or q.size(-1), rope_scale, rope_theta, q.device)
    return _both(q, k, pos_ids, inverse, interleave)


def apply_rope_pos_ids_inplace(
    q: torch.Tensor,
    k: torch.Tensor,
    pos_ids: torch.Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 1,
    rope_theta: float = 1e4,
) -> None:
    """`apply_rope_pos_ids` into `q` and `k`."""
    _into(q, k, apply_rope_pos_ids(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta))


def apply_llama31_rope(
    q: torch.Tensor,
    k: torch.Tensor,
    indptr: torch.Tensor,
    offsets: torch.Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`apply_rope` with Llama 3.1's frequencies: slow ones by `rope_scale` slower, those in between partly."""
    inverse = frequencies(rotary_dim or q.size(-1), 1, rope_theta, q.device)
    inverse = _llama31(inverse, rope_scale, low_freq_factor, high_freq_factor, old_context_len)
    return _both(q, k, _positions(indptr, offsets, q.size(0)), inverse, interleave)


def apply_llama31_rope_inplace(
    q: torch.Tensor,
    k: torch.Tensor,
    indptr: torch.Tensor,
    offsets: torch.Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> None:
    """`apply_llama31_rope` into `q` and `k`."""
    results = apply_llama31_rope(
        q, k, indptr, offsets, rotary_dim, interleave, rope_scale, rope_theta, low_freq_factor, high_freq_factor,
        old_context_len,
    )  # fmt: skip
    _into(q, k, results)


def apply_llama31_rope_pos_ids(
    q: torch.Tensor,
    k: torch.Tensor,
    pos_ids: torch.Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`apply_llama31_rope` with the position of each row, `pos_ids` (rows,)."""
    inverse = frequencies(rotary_dim or q.size(-1), 1, rope_theta, q.device)
    inverse = _llama31(inverse, rope_scale, low_freq_factor, high_freq_factor, old_context_len)
    return _both(q, k, pos_ids, inverse, interleave)


def apply_llama31_rope_pos_ids_inplace(
    q: torch.Tensor,
    k: torch.Tensor,
    pos_ids: torch.Tensor,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1,
    high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> None:
    """`apply_llama31_rope_pos_ids` into `q` and `k`."""
    results = apply_llama31_rope_pos_ids(
        q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta, low_freq_factor, high_freq_factor,
        old_context_len,
    )  # fmt: skip
    _into(q, k, results)


def apply_rope_with_cos_sin_cache(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`query` (rows, heads * head_size) and `key`, turned by ``cos_sin_cache[positions]``.

    `cos_sin_cache` (positions, rotary dim), float32, has the cosines in its first half and the sines in its second.
    `is_neox` turns one half of a head with the other, else neighbours.
    """
    if cos_sin_cache.dtype != torch.float32:
        raise InvalidArgument(f"cos_sin_cache is {cos_sin_cache.dtype}; it must be float32")
    cosine, sine = wide(cos_sin_cache[positions.long()]).unsqueeze(1).chunk(2, dim=-1)
    results = []
    for given in (query, key):
        heads = given.reshape(given.size(0), -1, head_size)
        results.append(turned(wide(heads), cosine, sine, not is_neox).to(given.dtype).reshape(given.shape))
    return results[0], results[1]


def apply_rope_with_cos_sin_cache_inplace(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool = True,
) -> None:
    """`apply_rope_with_cos_sin_cache` into `query` and `key`."""
    _into(query, key, apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache, is_neox))


def _llama31(inverse: torch.Tensor, scale: float, low: float, high: float, context: int) -> torch.Tensor:
    """Wavelengths below context / high stay, those above context / low are scaled, in between it is linear."""
    turns = context * inverse / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * inverse / scale + kept * inverse


def _positions(indptr: torch.Tensor, offsets: torch.Tensor, rows: int) -> torch.Tensor:
    lengths = indptr.diff().long()
    first = torch.repeat_interleave(offsets.long() - indptr[:-1].long(), lengths)
    return first + torch.arange(rows, device=first.device)


def _both(
    q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, inverse: torch.Tensor, interleave: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        rotated(wide(q), positions, inverse, interleave).to(q.dtype),
        rotated(wide(k), positions, inverse, interleave).to(k.dtype),
    )


def _into(q: torch.Tensor, k: torch.Tensor, results: tuple[torch.Tensor, torch.Tensor]) -> None:
    q.copy_(results[0])
    k.copy_(results[1])

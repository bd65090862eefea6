"""The paged KV cache: one tensor or a pair, in either layout, any dtype that FlashInfer has for it but NVFP4."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import torch

from ..errors import InvalidArgument, InvalidPlan
from .checks import refuse

PagedKVCache: TypeAlias = "torch.Tensor | tuple[torch.Tensor, torch.Tensor]"


def unpacked(paged_kv_cache: PagedKVCache, kv_layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values, each (pages, page_size, kv_heads, dim) in NHD, (pages, kv_heads, page_size, dim) in HND.

    The dimension of a page size of 1 may be left out, as FlashInfer allows.
    """
    if isinstance(paged_kv_cache, tuple):
        keys, values = paged_kv_cache
    elif isinstance(paged_kv_cache, torch.Tensor) and paged_kv_cache.ndim in (4, 5) and paged_kv_cache.size(1) == 2:
        keys, values = paged_kv_cache.unbind(dim=1)
    else:
        told = getattr(paged_kv_cache, "shape", type(paged_kv_cache).__name__)
        raise InvalidArgument(f"paged_kv_cache must be a tuple or a tensor (pages, 2, …); it is {told}")
    return _with_page_size(keys, kv_layout), _with_page_size(values, kv_layout)


def _with_page_size(pool: torch.Tensor, kv_layout: str) -> torch.Tensor:
    if pool.ndim not in (3, 4):
        raise InvalidArgument(f"A page pool has shape {tuple(pool.shape)}; it must have 4 dimensions")
    refuse("run", kv_cache_sf=pool.dtype == torch.uint8)
    return pool if pool.ndim == 4 else pool.unsqueeze(1 if kv_layout == "NHD" else 2)


def page_size_of(pool: torch.Tensor, kv_layout: str) -> int:
    return int(pool.size(1 if kv_layout == "NHD" else 2))


def gathered(pool: torch.Tensor, pages: torch.Tensor, kv_len: int, kv_layout: str) -> torch.Tensor:
    """The first `kv_len` tokens of `pages`, (kv_len, kv_heads, …) of the pool's dtype."""
    # fp8 cannot be indexed everywhere; its bytes can.
    stored = pool.view(torch.uint8) if pool.dtype.itemsize == 1 else pool
    tokens = stored[pages.long()]
    tokens = tokens if kv_layout == "NHD" else tokens.transpose(1, 2)
    return tokens.flatten(0, 1)[:kv_len].view(pool.dtype)


def check_pages(indices: torch.Tensor, pages: int) -> None:
    """Every index is a page of the pool; a kernel would read past its end."""
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < pages:
        raise InvalidArgument(
            f"page indices reach from {int(indices.min())} to {int(indices.max())}; the cache has {pages} pages"
        )


def lengths(indptr: list[int], last_page_len: list[int], page_size: int) -> list[int]:
    """KV tokens of each request; 0 where it has no page, whatever its last page is said to hold."""
    pages = [end - start for start, end in pairwise(indptr)]
    return [(count - 1) * page_size + last if count else 0 for count, last in zip(pages, last_page_len, strict=True)]


def check_room(kv_lens: Sequence[int], indptr: list[int], page_size: int) -> None:
    """Each request's tokens fit into its pages."""
    for kv_len, (start, end) in zip(kv_lens, pairwise(indptr), strict=True):
        if kv_len > (end - start) * page_size:
            raise InvalidPlan(f"a request has {kv_len} tokens in {end - start} pages of {page_size}")

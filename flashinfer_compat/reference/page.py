"""`flashinfer.page`: new keys and values written into a paged KV cache, and where each goes."""

from __future__ import annotations

import torch

from ..errors import InvalidArgument
from .checks import check_layout, check_tensor
from .kv_cache import PagedKVCache, check_pages, page_size_of, unpacked


def get_batch_indices_positions(
    append_indptr: torch.Tensor,
    seq_lens: torch.Tensor,
    nnz: int,
    batch_indices: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The request and the position of each appended token, both int32 (nnz,): the last of request b at its end.

    `append_indptr` (requests + 1,) counts the appended tokens, `seq_lens` (requests,) all tokens, these included. Rows
    of `nnz` beyond them have request -1. `batch_indices` and `positions` are written and returned where given.
    """
    device = append_indptr.device
    results = []
    for name, given, blank in (("batch_indices", batch_indices, -1), ("positions", positions, 0)):
        if given is None:
            results.append(torch.full((nnz,), blank, dtype=torch.int32, device=device))
        else:
            check_tensor(name, given, (nnz,), torch.int32, device)
            results.append(given)
    requests, places = results
    requests.fill_(-1)
    appended = append_indptr.diff().long()
    rows = min(int(append_indptr[-1]), nnz)
    of_row = torch.repeat_interleave(torch.arange(len(appended), device=device), appended)[:rows]
    requests[:rows] = of_row.int()
    behind = torch.arange(rows, device=device) - append_indptr[1:].long()[of_row]
    places[:rows] = (behind + seq_lens.to(device).long()[of_row]).int()
    return requests, places


def get_seq_lens(kv_indptr: torch.Tensor, kv_last_page_len: torch.Tensor, page_size: int) -> torch.Tensor:
    """Tokens of each request (requests,), from its pages (requests + 1,) and its last page's tokens (requests,)."""
    return (kv_indptr.diff() - 1).clamp(min=0) * page_size + kv_last_page_len


def append_paged_kv_cache(
    append_key: torch.Tensor,
    append_value: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    paged_kv_cache: PagedKVCache,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_last_page_len: torch.Tensor,
    kv_layout: str = "NHD",
) -> None:
    """Write keys and values (nnz, kv_heads, dim) to the `positions` (nnz,) of their requests `batch_indices` (nnz,).

    The page table `kv_indices`, `kv_indptr`, `kv_last_page_len` has the pages for them already.
    """
    check_layout(kv_layout)
    keys, values = unpacked(paged_kv_cache, kv_layout)
    for name, new, pool in (("append_key", append_key, keys), ("append_value", append_value, values)):
        heads, dim = pool.size(2 if kv_layout == "NHD" else 1), pool.size(3)
        if tuple(new.shape) != (batch_indices.numel(), heads, dim) or new.dtype != pool.dtype:
            raise InvalidArgument(
                f"{name} is {tuple(new.shape)} of {new.dtype}; the cache takes {(batch_indices.numel(), heads, dim)} "
                f"of {pool.dtype}"
            )
        by_token = pool if kv_layout == "NHD" else pool.transpose(1, 2)
        _append(new, by_token, batch_indices, positions, kv_indices, kv_indptr, page_size_of(pool, kv_layout))


def append_paged_mla_kv_cache(
    append_ckv: torch.Tensor,
    append_kpe: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    ckv_cache: torch.Tensor | None,
    kpe_cache: torch.Tensor | None,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_last_page_len: torch.Tensor,
) -> None:
    """`append_paged_kv_cache` for MLA: latents (nnz, 512) and rotary keys (nnz, 64) into (pages, page_size, …)."""
    for name, new, pool in (("ckv", append_ckv, ckv_cache), ("kpe", append_kpe, kpe_cache)):
        if pool is None:
            raise InvalidArgument(f"{name}_cache is missing")
        if new.shape[1:] != pool.shape[2:] or new.dtype != pool.dtype:
            raise InvalidArgument(
                f"append_{name} is {tuple(new.shape)} of {new.dtype}, {name}_cache {tuple(pool.shape)} of {pool.dtype}"
            )
        _append(new, pool, batch_indices, positions, kv_indices, kv_indptr, pool.size(1))


def _append(
    new: torch.Tensor,
    pool: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    page_size: int,
) -> None:
    """Write `new` (nnz, …) into the `pool` (pages, page_size, …)."""
    if batch_indices.numel() and int(batch_indices.min()) < 0:
        raise InvalidArgument("batch_indices has rows of no request (-1); FlashInfer would read before kv_indptr")
    slots = kv_indptr.long()[batch_indices.long()] * page_size + positions.long()
    pages = kv_indices.long()[slots // page_size]
    check_pages(pages, pool.size(0))
    if pool.dtype.itemsize == 1:
        new, pool = new.view(torch.uint8), pool.view(torch.uint8)
    pool[pages, slots % page_size] = new

"""The FA2 query tile: what makes chunked prefill bit-exact, and pinning the backend that has it."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch

from ..errors import CompatWarning, InvalidPlan, UnsupportedCombination


class ChunkAlign(int):
    """A chunk alignment in tokens, with what it rests on.

    Attributes:
        query_tile: packed query rows (tokens × GQA group) of one kernel tile.
        smaller_tile_up_to: a batch whose average query length, in tokens, is not above this gets a smaller tile, and
            its results are then not bit-exact with those of longer chunks; 0 where there is no smaller tile.
    """

    query_tile: int
    smaller_tile_up_to: int

    def __new__(cls, tokens: int, query_tile: int, smaller_tile_up_to: int) -> ChunkAlign:
        self = super().__new__(cls, tokens)
        self.query_tile, self.smaller_tile_up_to = query_tile, smaller_tile_up_to
        return self

    def __getnewargs__(self) -> tuple[int, int, int]:  # type: ignore[override]
        return int(self), self.query_tile, self.smaller_tile_up_to


def prefill_chunk_align(
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim_qk: int,
    head_dim_vo: int | None = None,
    *,
    backend: str = "fa2",
    qo_indptr_host: torch.Tensor | None = None,
) -> ChunkAlign | None:
    """The alignment in tokens at which FA2 prefill may be cut into chunks without changing a bit of the result.

    With ``fixed_split_size`` set, a chunked prefill equals the unchunked one bit for bit if every chunk starts on the
    kernel's query-tile grid: 128 packed rows for head dims below 256, 64 from 256 on, 32 from a value dim of 512 on,
    16 for a wide query-key dim alone. In tokens that is the tile divided by the GQA group.

    Args:
        num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo: as for ``plan``, on one rank.
        backend: the wrapper's resolved backend, ``wrapper._backend`` after a plan.
        qo_indptr_host: a batch (CPU, ``[batch_size + 1]``) that is going to be planned eagerly; a warning says when its
            average query length is so short that the kernel takes a smaller tile.

    Returns None where no such guarantee exists: every backend but ``fa2`` (``"auto"`` included), and MLA wrappers,
    which have no fixed split. Source: include/flashinfer/utils.cuh, FA2DetermineCtaTileQ, the same in all supported
    releases.
    """
    if num_qo_heads < 1 or num_kv_heads < 1 or num_qo_heads % num_kv_heads:
        raise UnsupportedCombination(f"num_qo_heads={num_qo_heads} must be a multiple of num_kv_heads={num_kv_heads}.")
    if backend != "fa2":
        return None
    head_dim_vo = head_dim_qk if head_dim_vo is None else head_dim_vo
    query_tile, smaller_tile_up_to_rows = _largest_tile(head_dim_qk, head_dim_vo)
    group = num_qo_heads // num_kv_heads
    align = ChunkAlign(query_tile // math.gcd(query_tile, group), query_tile, smaller_tile_up_to_rows // group)
    if qo_indptr_host is not None:
        _warn_of_smaller_tile(align, group, smaller_tile_up_to_rows, qo_indptr_host)
    return align


def _largest_tile(head_dim_qk: int, head_dim_vo: int) -> tuple[int, int]:
    """The tile of long queries, and the average packed length up to which a smaller one is taken."""
    if head_dim_vo >= 512:
        return 32, 32
    if head_dim_qk >= 512:
        return 16, 0
    return (128, 64) if head_dim_vo < 256 else (64, 16)


def _warn_of_smaller_tile(align: ChunkAlign, group: int, up_to_rows: int, qo_indptr_host: torch.Tensor) -> None:
    requests = qo_indptr_host.numel() - 1
    average = int(qo_indptr_host[-1] - qo_indptr_host[0]) * group // requests if requests else 0
    if average <= up_to_rows:
        warnings.warn(
            f"this batch averages {average} packed query rows a request, so FA2 takes a tile smaller than "
            f"{align.query_tile}: its results are not bit-exact with those of chunks above {align.smaller_tile_up_to} "
            "tokens",
            CompatWarning,
            stacklevel=3,
        )


def use_deterministic_backend(wrapper: Any) -> Any:
    """Pin `wrapper` to ``fa2``, the one backend with a deterministic split, and return it.

    For wrappers made with ``backend="auto"`` or ``"fa2"``, before their first plan. "auto" differs between releases and
    devices (0.7.4 takes FA2 for short queries on SM90 where older releases take FA3, and cuDNN in a window on SM100).
    Plan it with ``fixed_split_size`` (or ``disable_split_kv=True`` in CUDA graphs), and leave ``uniform_q_len`` out or
    set ``FLASHINFER_DISABLE_EAGLE_VERIFY_FP8KV_SM90=1``: the SM90 verify kernel reduces in another order.
    """
    planned = getattr(wrapper, "_plan_info", None) is not None
    if wrapper._backend not in ("auto", "fa2") or planned:
        raise InvalidPlan(
            "use_deterministic_backend takes an unplanned wrapper with backend 'auto' or 'fa2'; this one has "
            f"{wrapper._backend!r}{' and was planned' if planned else ''}."
        )
    wrapper._backend = "fa2"
    # Kept beside the resolved backend where "auto" is resolved again in each plan (prefill 0.7.4, decode from 0.7.2).
    if hasattr(wrapper, "_requested_backend"):
        wrapper._requested_backend = "fa2"
    return wrapper

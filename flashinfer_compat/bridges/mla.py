"""MLA: query rows beyond the plan, which releases before 0.7.4 tolerated."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def planned_rows(
    self: Any,
    q_nope: Tensor | None,
    q_pe: Tensor | None,
    query: Any,
    out: Tensor | None,
    lse: Tensor | None,
    return_lse: bool,
) -> tuple[Any, ...]:
    """Cut a padded query, and its outputs, to the rows that the FA2/FA3 plan covers.

    From 0.7.4 on ``run`` refuses any other number of rows (_fa_common.py, _check_planned_geometry); engines run batches
    padded to a CUDA graph's size. The rows beyond stay unwritten, as they did before. Returns the arguments of ``run``
    and the full-size outputs, None where nothing was cut.
    """
    planned = getattr(self._planned_backend, "_planned_query_shape", None)
    first = q_nope if query is None else query
    while isinstance(first, tuple):
        first = first[0]
    if planned is None or first is None or first.shape[0] <= planned[0]:
        return q_nope, q_pe, query, out, lse, None
    rows = planned[0]
    if out is None:
        out = first.new_empty((first.shape[0], first.shape[1], self._planned_backend._head_dim_ckv))
    if lse is None and return_lse:
        lse = first.new_empty(first.shape[:2], dtype=torch.float32)
    return (
        None if q_nope is None else q_nope[:rows],
        None if q_pe is None else q_pe[:rows],
        _cut(query, rows),
        out[:rows],
        None if lse is None else lse[:rows],
        (out, lse),
    )


def _cut(query: Any, rows: int) -> Any:
    """A packed query, a split one, or one split further, to its first `rows`."""
    if isinstance(query, tuple):
        return tuple(_cut(part, rows) for part in query)
    return None if query is None else query[:rows]


def refuses_other_rows() -> bool:
    """Whether the installed FA2/FA3 plans check the number of query rows in ``run``."""
    from flashinfer.mla._batch_mla._backends import _fa_common

    return any(hasattr(value, "_check_planned_geometry") for value in vars(_fa_common).values())


def padded_result(result: Any, padded: tuple[Tensor, Tensor | None] | None, return_lse: bool) -> Any:
    """What ``run`` returns: the full-size outputs where the query was cut."""
    if padded is None:
        return result
    return padded if return_lse else padded[0]


def determine_mla_backend() -> Any:
    """Makes the function that 0.7.2 removed from flashinfer.utils."""
    from flashinfer.utils import is_sm90a_supported

    def determine_mla_backend(device: torch.device) -> str:
        """``"fa3"`` where the device has it, else ``"fa2"``."""
        return "fa3" if is_sm90a_supported(device) else "fa2"

    return determine_mla_backend

"""Attention over parts of the KV, merged."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..case import Case, Function, Operation, Outputs, Workload
from ..draw import Draw
from ..library import Library
from .attention import PagedPrefill, PageTable, indptr

_ROWS, _HEADS, _HEAD_DIM = 60, 8, 128


def _states(draw: Draw, parts: int) -> list[torch.Tensor]:
    """Outputs and log-sum-exps of `parts`, in turn; the first part of some rows is empty."""
    states = []
    for part in range(parts):
        sums = 4 * draw.normal(_ROWS, _HEADS)
        if part == 0:
            sums[:5] = -torch.inf
        states += [draw.normal(_ROWS, _HEADS, _HEAD_DIM, dtype=torch.bfloat16), sums]
    return states


def _stacked(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    states = _states(draw, 3)
    return torch.stack(states[::2], dim=1), torch.stack(states[1::2], dim=1)


@dataclass(frozen=True)
class SharedPrefix(Workload):
    """Three requests behind one prefix: a level of it, and a level of their own."""

    prefix: int = 320
    q_lens: tuple[int, ...] = (5, 1, 33)
    kv_lens: tuple[int, ...] = (5, 200, 40)

    def prepare(self, draw: Draw, library: Library) -> Operation:
        shape = PagedPrefill()
        levels = [((sum(self.q_lens),), (self.prefix,)), (self.q_lens, self.kv_lens)]
        tables = [PageTable(draw, kv_lens, shape.page_size) for _, kv_lens in levels]
        # One cache holds both levels: the pages of the second lie behind those of the first.
        tables[1].indices += tables[0].pages
        wrapper = library.cascade.MultiLevelCascadeAttentionWrapper(len(levels), draw.workspace, shape.layout)
        wrapper.plan(
            [indptr(q_lens, draw.device) for q_lens, _ in levels],
            [table.indptr for table in tables],
            [table.indices for table in tables],
            [table.last_page_len for table in tables],
            *shape.shape,
            causal=True,
            q_data_type=shape.dtype,
        )
        queries = draw.normal(sum(self.q_lens), shape.heads, shape.head_dim, dtype=shape.dtype)
        cache = torch.stack(shape.pools(draw, sum(table.pages for table in tables)), dim=1)

        def run() -> Outputs:
            return (wrapper.run(queries, cache),)

        return Operation(run, (queries, cache))


CASES = (
    Case(
        name="merge_state",
        features=("cascade.merge_state",),
        dtype=torch.bfloat16,
        workload=Function(name="cascade.merge_state", arguments=lambda draw: tuple(_states(draw, 2))),
    ),
    Case(
        name="merge_states",
        features=("cascade.merge_states",),
        dtype=torch.bfloat16,
        workload=Function(name="cascade.merge_states", arguments=_stacked),
    ),
    Case(
        name="cascade of a shared prefix",
        features=("cascade.MultiLevelCascadeAttentionWrapper",),
        dtype=torch.bfloat16,
        workload=SharedPrefix(),
        quick=False,
    ),
)

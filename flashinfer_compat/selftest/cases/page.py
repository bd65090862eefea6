"""New keys and values written into a paged KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..case import Case, Measure, Operation, Outputs, Workload
from ..draw import Draw
from ..library import Library
from .attention import Paged, PageTable, indptr


@dataclass(frozen=True, kw_only=True)
class Append(Workload):
    """The last `appended` tokens of each request are new."""

    layout: str
    appended: tuple[int, ...] = (3, 1, 40, 7)
    kv_lens: tuple[int, ...] = (50, 900, 40, 333)

    def prepare(self, draw: Draw, library: Library) -> Operation:
        shape = Paged(layout=self.layout)
        table = PageTable(draw, self.kv_lens, shape.page_size)
        pools = shape.pools(draw, table.pages)
        rows = sum(self.appended)
        keys, values = (draw.normal(rows, shape.kv_heads, shape.head_dim, dtype=shape.dtype) for _ in range(2))
        page, starts = library.page, indptr(self.appended, draw.device)
        places, append = page.get_batch_indices_positions, page.append_paged_kv_cache

        def run() -> Outputs:
            requests, positions = places(starts, table.kv_lens, rows)
            append(
                keys, values, requests, positions, pools, table.indices, table.indptr, table.last_page_len,
                kv_layout=self.layout,
            )  # fmt: skip
            return requests, positions, *pools

        return Operation(run)


CASES = tuple(
    Case(
        name=f"page append, {layout}",
        features=("page.get_batch_indices_positions", "page.append_paged_kv_cache"),
        dtype=torch.bfloat16,
        workload=Append(layout=layout),
        measure=Measure.DIFFERING,
    )
    for layout in ("NHD", "HND")
)

"""Multi-head latent attention over a paged latent KV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..case import Case, Operation, Outputs, Workload
from ..draw import Draw
from ..library import REFERENCE, Library
from .attention import PageTable, indptr

_HEADS, _LATENT, _ROTARY, _PAGE_SIZE = 16, 512, 64, 16


@dataclass(frozen=True, kw_only=True)
class LatentAttention(Workload):
    """`q_lens` query tokens of each request, causal where there are several."""

    q_lens: tuple[int, ...]
    kv_lens: tuple[int, ...] = (70, 513, 9)
    captured: bool = False

    def prepare(self, draw: Draw, library: Library) -> Operation:
        table = PageTable(draw, self.kv_lens, _PAGE_SIZE)
        rows = indptr(self.q_lens, draw.device)
        layout = {
            "qo_indptr": rows,
            "kv_indptr": table.indptr,
            "kv_indices": table.indices,
            "kv_len_arr": table.kv_lens,
        }
        buffers: dict[str, Any] = {}
        if self.captured:
            buffers = {"use_cuda_graph": True, **{name: torch.zeros_like(each) for name, each in layout.items()}}
        wrapper = library.mla.BatchMLAPagedAttentionWrapper(draw.workspace, backend="fa2", **buffers)
        wrapper.plan(
            metadata=library.mla.MLAPlanMetadata.csr(*layout.values()),
            num_heads=_HEADS, head_dim_ckv=_LATENT, head_dim_kpe=_ROTARY, page_size=_PAGE_SIZE,
            causal=max(self.q_lens) > 1, sm_scale=(128 + _ROTARY) ** -0.5,
            q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
            query_layout="split", kv_cache_layout="split", lse_mode="base2",
            **({"output_dtype": torch.float64} if library is REFERENCE else {}),
        )  # fmt: skip
        query = tuple(draw.normal(sum(self.q_lens), _HEADS, dim, dtype=torch.bfloat16) for dim in (_LATENT, _ROTARY))
        cache = tuple(draw.normal(table.pages, _PAGE_SIZE, dim, dtype=torch.bfloat16) for dim in (_LATENT, _ROTARY))

        def run() -> Outputs:
            out, lse = wrapper.run(query=query, kv_cache=cache, return_lse=True)
            return out, lse

        return Operation(run, (*query, *cache))


def _case(name: str, q_lens: tuple[int, ...]) -> Case:
    return Case(
        name=name,
        features=("mla.BatchMLAPagedAttentionWrapper",),
        dtype=torch.bfloat16,
        workload=LatentAttention(q_lens=q_lens),
    )


CASES = (_case("MLA decode", (1, 1, 1)), _case("MLA, several tokens a request", (2, 5, 1)))

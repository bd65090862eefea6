"""Prefill and decode: paged and ragged, masks, window, soft cap, fp8 KV, the query-length hint, chunks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..case import Case, Measure, Operation, Outputs, Workload
from ..draw import Draw
from ..library import FACADE, Library

_FP8 = torch.float8_e4m3fn
_PAGED = "prefill.BatchPrefillWithPagedKVCacheWrapper"
_RAGGED = "prefill.BatchPrefillWithRaggedKVCacheWrapper"
_DECODE = "decode.BatchDecodeWithPagedKVCacheWrapper"
#: One-token, short and long requests, in full pages and not.
_Q_LENS, _KV_LENS = (1, 130, 17, 1, 64), (1, 333, 17, 1025, 64)


def indptr(lengths: Sequence[int], device: torch.device) -> torch.Tensor:
    """(len(lengths) + 1,), int32."""
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)


class PageTable:
    """Pages for requests of `kv_lens` tokens, in random order among some more."""

    def __init__(self, draw: Draw, kv_lens: Sequence[int], page_size: int) -> None:
        counts = [-(-length // page_size) for length in kv_lens]
        self.pages = sum(counts) + 7
        self.indptr = indptr(counts, draw.device)
        self.indices = draw.permutation(self.pages)[: sum(counts)].contiguous()
        last = [(length - 1) % page_size + 1 for length in kv_lens]
        self.last_page_len = torch.tensor(last, dtype=torch.int32, device=draw.device)
        self.kv_lens = torch.tensor(kv_lens, dtype=torch.int32, device=draw.device)


@dataclass(frozen=True, kw_only=True)
class Attention(Workload):
    """A batch of requests. `captured` asks for a wrapper that CUDA graphs can be captured of.

    `plan` are keywords of the wrapper's plan() besides.
    """

    q_lens: tuple[int, ...] = _Q_LENS
    kv_lens: tuple[int, ...] = _KV_LENS
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 128
    dtype: torch.dtype = torch.bfloat16
    captured: bool = False
    plan: Mapping[str, Any] = field(default_factory=dict)

    def queries(self, draw: Draw) -> torch.Tensor:
        return draw.normal(sum(self.q_lens), self.heads, self.head_dim, dtype=self.dtype)


@dataclass(frozen=True, kw_only=True)
class Paged(Attention):
    """Over a paged KV. An fp8 KV comes with scales."""

    page_size: int = 16
    layout: str = "NHD"
    kv_dtype: torch.dtype | None = None
    backend: str = "fa2"

    def pools(self, draw: Draw, pages: int) -> tuple[torch.Tensor, torch.Tensor]:
        inner = (self.page_size, self.kv_heads) if self.layout == "NHD" else (self.kv_heads, self.page_size)
        keys, values = (
            draw.normal(pages, *inner, self.head_dim, dtype=self.dtype).to(self.kv_dtype or self.dtype)
            for _ in range(2)
        )
        return keys, values

    @property
    def dtypes(self) -> dict[str, torch.dtype]:
        return {"q_data_type": self.dtype, "kv_data_type": self.kv_dtype or self.dtype}

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """What plan() takes behind the page table."""
        return self.heads, self.kv_heads, self.head_dim, self.page_size

    def operation(self, wrapper: Any, queries: torch.Tensor, pools: tuple[torch.Tensor, torch.Tensor]) -> Operation:
        scales = {} if self.kv_dtype is None else {"k_scale": 0.75, "v_scale": 1.25}

        def run() -> Outputs:
            out, lse = wrapper.run(queries, pools, return_lse=True, **scales)
            return out, lse

        return Operation(run, (queries, *pools))


@dataclass(frozen=True, kw_only=True)
class PagedPrefill(Paged):
    """`masked` by a random custom mask of which every row sees something."""

    masked: bool = False

    def prepare(self, draw: Draw, library: Library) -> Operation:
        table = PageTable(draw, self.kv_lens, self.page_size)
        wrapper = self.wrapper(draw, library, table)
        self.planned(wrapper, draw, library, table)
        return self.operation(wrapper, self.queries(draw), self.pools(draw, table.pages))

    def wrapper(self, draw: Draw, library: Library, table: PageTable) -> Any:
        buffers: dict[str, Any] = {}
        if self.captured:
            rows = torch.zeros(len(self.q_lens) + 1, dtype=torch.int32, device=draw.device)
            buffers = {
                "use_cuda_graph": True,
                "qo_indptr_buf": rows,
                "paged_kv_indptr_buf": torch.zeros_like(rows),
                "paged_kv_indices_buf": torch.zeros_like(table.indices),
                "paged_kv_last_page_len_buf": torch.zeros_like(table.last_page_len),
            }
            if self.masked:
                bits = sum(rows * kv_len for rows, kv_len in zip(self.q_lens, self.kv_lens, strict=True))
                # With room to spare, as FlashInfer's SM90 verify kernel wants.
                size = bits // 8 + len(self.q_lens) + 64
                buffers["custom_mask_buf"] = torch.zeros(size, dtype=torch.uint8, device=draw.device)
                buffers["mask_indptr_buf"] = torch.zeros_like(rows)
        made_by = library.prefill.BatchPrefillWithPagedKVCacheWrapper
        return made_by(draw.workspace, self.layout, backend=self.backend, **buffers)

    def planned(self, wrapper: Any, draw: Draw, library: Library, table: PageTable) -> None:
        mask = {"custom_mask": self.mask(draw)} if self.masked else {}
        wrapper.plan(
            indptr(self.q_lens, draw.device), table.indptr, table.indices, table.last_page_len, *self.shape,
            **self.dtypes, **self.plan, **mask, **library.unrounded,
        )  # fmt: skip

    def mask(self, draw: Draw) -> torch.Tensor:
        parts = []
        for rows, kv_len in zip(self.q_lens, self.kv_lens, strict=True):
            part = draw.uniform(rows, kv_len) < 0.8
            part[:, -1] = True
            parts.append(part.flatten())
        return torch.cat(parts)


@dataclass(frozen=True, kw_only=True)
class FastPlanned(PagedPrefill):
    """A CUDA-graph wrapper planned for the same KV lengths in another order, and replanned from host tensors."""

    captured: bool = True

    def planned(self, wrapper: Any, draw: Draw, library: Library, table: PageTable) -> None:
        before = replace(self, kv_lens=self.kv_lens[::-1])
        PagedPrefill.planned(before, wrapper, draw, library, PageTable(draw, before.kv_lens, self.page_size))
        rows = indptr(self.q_lens, draw.device)
        library.prefill.fast_prefill_plan(
            wrapper, rows, table.indptr, table.indices, table.last_page_len, *self.shape,
            **self.dtypes, **self.plan, **library.unrounded,
            qo_indptr_host=rows.cpu(), kv_indptr_host=table.indptr.cpu(), kv_lens_host=table.kv_lens.cpu(),
            max_q_len=max(self.q_lens), max_kv_len=max(self.kv_lens),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TokenHeadScales(PagedPrefill):
    """An fp8 KV with a scale for each token and head."""

    kv_dtype: torch.dtype | None = _FP8
    plan: Mapping[str, Any] = field(default_factory=lambda: {"causal": True, "use_token_head_sf": True})

    def operation(self, wrapper: Any, queries: torch.Tensor, pools: tuple[torch.Tensor, torch.Tensor]) -> Operation:
        # Of the size that quantised values come with: a fourth of the largest entry of each token and head.
        scales = tuple((pool.float().abs().amax(dim=-1) / 4).contiguous() for pool in pools)

        def run() -> Outputs:
            out, lse = wrapper.run(queries, pools, kv_cache_sf=scales, return_lse=True)
            return out, lse

        return Operation(run, (queries,))


@dataclass(frozen=True, kw_only=True)
class RaggedPrefill(Attention):
    """`host` tells plan() the lengths on the CPU besides."""

    host: bool = False

    def prepare(self, draw: Draw, library: Library) -> Operation:
        rows, tokens = indptr(self.q_lens, draw.device), indptr(self.kv_lens, draw.device)
        buffers: dict[str, Any] = {}
        if self.captured:
            buffers = {
                "use_cuda_graph": True,
                "qo_indptr_buf": torch.zeros_like(rows),
                "kv_indptr_buf": torch.zeros_like(tokens),
            }
        made_by = library.prefill.BatchPrefillWithRaggedKVCacheWrapper
        wrapper = made_by(draw.workspace, "NHD", backend="fa2", **buffers)
        host = {"qo_indptr_cpu": rows.cpu(), "kv_indptr_cpu": tokens.cpu()} if self.host else {}
        wrapper.plan(
            rows, tokens, self.heads, self.kv_heads, self.head_dim,
            q_data_type=self.dtype, **self.plan, **host, **library.unrounded,
        )  # fmt: skip
        queries = self.queries(draw)
        keys, values = (
            draw.normal(sum(self.kv_lens), self.kv_heads, self.head_dim, dtype=self.dtype) for _ in range(2)
        )

        def run() -> Outputs:
            out, lse = wrapper.run(queries, keys, values, return_lse=True)
            return out, lse

        return Operation(run, (queries, keys, values))


@dataclass(frozen=True, kw_only=True)
class Decode(Paged):
    """As many query tokens for each request as its plan's ``q_len_per_req`` says, one by default."""

    tensor_cores: bool = False
    q_lens: tuple[int, ...] = (1,) * 5
    kv_lens: tuple[int, ...] = (4, 700, 16, 2049, 33)

    def prepare(self, draw: Draw, library: Library) -> Operation:
        table = PageTable(draw, self.kv_lens, self.page_size)
        buffers: dict[str, Any] = {}
        if self.captured:
            buffers = {
                "use_cuda_graph": True,
                "paged_kv_indptr_buffer": torch.zeros_like(table.indptr),
                "paged_kv_indices_buffer": torch.zeros_like(table.indices),
                "paged_kv_last_page_len_buffer": torch.zeros_like(table.last_page_len),
            }
        wrapper = library.decode.BatchDecodeWithPagedKVCacheWrapper(
            draw.workspace, self.layout, use_tensor_cores=self.tensor_cores, backend=self.backend, **buffers
        )
        wrapper.plan(
            table.indptr, table.indices, table.last_page_len, *self.shape,
            **self.dtypes, **self.plan, **library.unrounded,
        )  # fmt: skip
        return self.operation(wrapper, self.queries(draw), self.pools(draw, table.pages))


@dataclass(frozen=True, kw_only=True)
class Chunked(Workload):
    """A prompt computed in chunks on the grid of ``prefill_chunk_align``: the bits of the whole."""

    tokens: int = 768
    heads: int = 32
    kv_heads: int = 8
    #: Pages of a split of the KV, three splits in all.
    split: int = 16
    whole: bool = False

    def prepare(self, draw: Draw, library: Library) -> Operation:
        shape = PagedPrefill(heads=self.heads, kv_heads=self.kv_heads)
        align = library.prefill.prefill_chunk_align(self.heads, self.kv_heads, shape.head_dim)
        table = PageTable(draw, (self.tokens,), shape.page_size)
        queries = draw.normal(self.tokens, self.heads, shape.head_dim, dtype=shape.dtype)
        pools = shape.pools(draw, table.pages)
        ends = [self.tokens] if self.whole else [5 * align, 11 * align, 15 * align, self.tokens]

        def run() -> Outputs:
            wrapper = library.prefill.BatchPrefillWithPagedKVCacheWrapper(draw.workspace, backend="fa2")
            parts = []
            for start, end in itertools.pairwise([0, *ends]):
                pages = -(-end // shape.page_size)
                wrapper.plan(
                    indptr([end - start], draw.device), indptr([pages], draw.device), table.indices[:pages],
                    torch.tensor([(end - 1) % shape.page_size + 1], dtype=torch.int32, device=draw.device),
                    *shape.shape, causal=True, fixed_split_size=self.split, **shape.dtypes,
                )  # fmt: skip
                parts.append(wrapper.run(queries[start:end], pools, return_lse=True))
            outs, sums = zip(*parts, strict=True)
            return torch.cat(outs), torch.cat(sums)

        return Operation(run)

    def expected(self, draw: Draw) -> Outputs:
        return replace(self, whole=True).prepare(draw, FACADE).run()


def _case(name: str, feature: str, workload: Attention, **options: Any) -> Case:
    return Case(name=name, features=(feature,), dtype=workload.dtype, workload=workload, **options)


def _verify(name: str, hint: int | None, captured: bool) -> Case:
    """A speculative verify step of four tokens a request, with the hint or without."""
    workload = PagedPrefill(
        q_lens=(4,) * 5,
        kv_lens=(257, 1024, 5, 600, 33),
        heads=4,
        kv_heads=1,
        page_size=1,
        masked=True,
        captured=captured,
        plan={} if hint is None else {"uniform_q_len": hint},
    )
    return _case(name, f"{_PAGED}.plan" if hint is None else "prefill.uniform_q_len", workload)


_CAUSAL = {"causal": True}

CASES = (
    _case("paged prefill, causal", _PAGED, PagedPrefill(plan=_CAUSAL)),
    _case("paged prefill, all of the KV", _PAGED, PagedPrefill(q_lens=(40,), kv_lens=(40,))),
    _case("paged prefill, 8 heads a KV head, HND", _PAGED, PagedPrefill(heads=16, layout="HND", plan=_CAUSAL)),
    _case("paged prefill, pages of 5", _PAGED, PagedPrefill(page_size=5, plan=_CAUSAL)),
    _case(
        "paged prefill, custom mask",
        f"{_PAGED}.plan(custom_mask)",
        PagedPrefill(q_lens=(3, 1, 40, 7), kv_lens=(50, 900, 40, 333), page_size=1, masked=True),
    ),
    _case("paged prefill, fp8 KV with scales", f"{_PAGED}.run(k_scale)", PagedPrefill(kv_dtype=_FP8, plan=_CAUSAL)),
    _case(
        "paged prefill, window",
        f"{_PAGED}.plan(window_left)",
        PagedPrefill(plan={"causal": True, "window_left": 100}),
        quick=False,
    ),
    _case(
        "paged prefill, soft cap",
        f"{_PAGED}.plan(logits_soft_cap)",
        PagedPrefill(plan={"causal": True, "logits_soft_cap": 5.0}),
        quick=False,
    ),
    _case("paged prefill, fp16", _PAGED, PagedPrefill(dtype=torch.float16, plan=_CAUSAL), quick=False),
    _case("paged prefill, backend auto", _PAGED, PagedPrefill(backend="auto", plan=_CAUSAL), quick=False),
    _case("paged prefill, scales by token and head", "prefill.token_head_scales", TokenHeadScales(), quick=False),
    _case(
        "paged prefill, fast_prefill_plan",
        "prefill.fast_prefill_plan",
        FastPlanned(q_lens=(7, 1, 30, 2), kv_lens=(64, 1000, 40, 3), plan=_CAUSAL),
    ),
    _verify("verify step", None, False),
    _verify("verify step, uniform_q_len", 4, False),
    _verify("verify step, graph plan", None, True),
    _verify("verify step, graph plan, uniform_q_len", 4, True),
    Case(
        name="chunked prefill, bits of the whole",
        features=("prefill.prefill_chunk_align", f"{_PAGED}.plan(fixed_split_size)"),
        dtype=torch.bfloat16,
        workload=Chunked(),
        measure=Measure.DIFFERING,
    ),
    _case("ragged prefill, causal", _RAGGED, RaggedPrefill(plan=_CAUSAL)),
    _case("ragged prefill, host indptr", "prefill.ragged_host_indptr", RaggedPrefill(host=True, plan=_CAUSAL)),
    _case(
        "ragged prefill, uniform_q_len",
        "prefill.ragged_uniform_q_len",
        RaggedPrefill(
            q_lens=(4,) * 5, kv_lens=(4,) * 5, captured=True, plan={"causal": True, "uniform_q_len": 4}
        ),
    ),
    _case("decode, CUDA cores", _DECODE, Decode()),
    _case("decode, tensor cores, HND", _DECODE, Decode(tensor_cores=True, layout="HND")),
    _case(
        "decode, four tokens a request",
        f"{_DECODE}.plan(q_len_per_req)",
        Decode(tensor_cores=True, q_lens=(4,) * 5, captured=True, plan={"q_len_per_req": 4}),
    ),
)  # fmt: skip

"""Attention in plain fp32 PyTorch, random batches to compute it for, and how a kernel's output is compared to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch

import flashinfer_compat as flashinfer

DEVICE = torch.device("cuda:0")
#: Largest ||out - reference|| / ||reference|| of one request. bf16 rounds the probabilities and the output, 2e-3 to
#: 3e-3 together. An e4m3 KV cache is exact in bf16: the reference reads the same values, and the bound is the same.
TOLERANCE = 1e-2
#: The query tile and whether KV is split, in a PrefillPlanInfo (scheduler.cuh).
CTA_TILE_Q, SPLIT_KV = 3, 14


def int32(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def indptr(lengths: Sequence[int]) -> torch.Tensor:
    """``[len(lengths) + 1]``, int32, on the host."""
    return int32([0, *accumulate(lengths)])


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sm_scale: float, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """One request: ``q [rows, heads, dim]``, ``k`` and ``v`` ``[kv_len, kv_heads, dim]``, mask ``[rows, kv_len]``.

    Returns the output ``[rows, heads, value dim]`` and the base-2 log-sum-exp ``[rows, heads]``, both fp32.
    """
    group = q.shape[1] // k.shape[1]
    k, v = (part.float().repeat_interleave(group, dim=1) for part in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q.float(), k) * sm_scale
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf)
    out = torch.einsum("hqk,khd->qhd", logits.softmax(-1), v)
    return out, logits.logsumexp(-1).T / torch.log(torch.tensor(2.0))


def causal_mask(rows: int, kv_len: int) -> torch.Tensor:
    """The last row sees all of the KV, each row before it one token less."""
    return torch.ones(rows, kv_len, dtype=torch.bool, device=DEVICE).tril(kv_len - rows)


class Cache:
    """A pool of KV pages, random, as the pair that FlashInfer takes; each page differs from every other."""

    def __init__(
        self,
        pages: int,
        kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        layout: str = "NHD",
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        self.pages, self.kv_heads, self.head_dim, self.page_size = pages, kv_heads, head_dim, page_size
        self.layout, self.dtype = layout, dtype
        inner = (page_size, kv_heads) if layout == "NHD" else (kv_heads, page_size)
        self.keys, self.values = (
            torch.randn(pages, *inner, head_dim, device=DEVICE, dtype=torch.bfloat16).to(dtype) for _ in range(2)
        )

    @property
    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.keys, self.values

    def read(self, pages: torch.Tensor, kv_len: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and the values of one request, ``[kv_len, kv_heads, head_dim]`` bf16."""
        gathered = []
        for pool in self.pair:
            # fp8 cannot be indexed everywhere, bf16 holds it exactly.
            part = pool.to(torch.bfloat16)[pages.long()]
            part = part if self.layout == "NHD" else part.transpose(1, 2)
            gathered.append(part.reshape(-1, self.kv_heads, self.head_dim)[:kv_len])
        return gathered[0], gathered[1]


class Batch:
    """Requests of given query and KV lengths on a random page table of `cache`, with random queries."""

    def __init__(self, cache: Cache, q_lens: Sequence[int], kv_lens: Sequence[int], heads: int) -> None:
        self.cache, self.q_lens, self.kv_lens, self.heads = cache, list(q_lens), list(kv_lens), heads
        pages = [-(-length // cache.page_size) for length in kv_lens]
        self.qo_indptr_host, self.kv_indptr_host = indptr(q_lens), indptr(pages)
        self.kv_lens_host = int32(kv_lens)
        self.last_page_len_host = int32([(length - 1) % cache.page_size + 1 for length in kv_lens])
        self.kv_indices = torch.randperm(cache.pages, device=DEVICE)[: sum(pages)].int()
        self.qo_indptr, self.kv_indptr, self.last_page_len = (
            tensor.to(DEVICE) for tensor in (self.qo_indptr_host, self.kv_indptr_host, self.last_page_len_host)
        )
        self.q = torch.randn(sum(q_lens), heads, cache.head_dim, device=DEVICE, dtype=torch.bfloat16)

    @property
    def layout_arguments(self) -> tuple[Any, ...]:
        """What ``plan`` and ``fast_prefill_plan`` take first."""
        cache = self.cache
        return (
            self.qo_indptr, self.kv_indptr, self.kv_indices, self.last_page_len,
            self.heads, cache.kv_heads, cache.head_dim, cache.page_size,
        )  # fmt: skip

    @property
    def dtypes(self) -> dict[str, torch.dtype]:
        return {"q_data_type": torch.bfloat16, "kv_data_type": self.cache.dtype}

    @property
    def host_arguments(self) -> dict[str, Any]:
        """What ``fast_prefill_plan`` takes besides."""
        return {
            "qo_indptr_host": self.qo_indptr_host,
            "kv_indptr_host": self.kv_indptr_host,
            "kv_lens_host": self.kv_lens_host,
            "max_q_len": max(self.q_lens),
            "max_kv_len": max(self.kv_lens),
        }

    def mask(self, visible: float = 0.8) -> torch.Tensor:
        """A random custom mask, flat as FlashInfer takes it; no row is left without a visible token."""
        parts = []
        for rows, kv_len in zip(self.q_lens, self.kv_lens, strict=True):
            part = torch.rand(rows, kv_len, device=DEVICE) < visible
            part[:, -1] = True
            parts.append(part.flatten())
        return torch.cat(parts)

    def expected(
        self, *, causal: bool = False, mask: torch.Tensor | None = None, q: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The output and the log-sum-exp of the whole batch; `q` in place of the batch's own queries."""
        q = self.q if q is None else q
        outs, sums = [], []
        sizes = [rows * kv_len for rows, kv_len in zip(self.q_lens, self.kv_lens, strict=True)]
        masks = [None] * len(sizes) if mask is None else mask.split(sizes)
        starts = self.kv_indptr_host.tolist()
        for request, rows in enumerate(q.split(self.q_lens)):
            kv_len = self.kv_lens[request]
            k, v = self.cache.read(self.kv_indices[starts[request] : starts[request + 1]], kv_len)
            visible = masks[request]
            if visible is not None:
                visible = visible.view(len(rows), kv_len)
            elif causal:
                visible = causal_mask(len(rows), kv_len)
            out, lse = attention(rows, k, v, self.cache.head_dim**-0.5, visible)
            outs.append(out)
            sums.append(lse)
        return torch.cat(outs), torch.cat(sums)

    def assert_right(self, out: torch.Tensor, *, q: torch.Tensor | None = None, **kind: Any) -> None:
        """`out` is attention of the given `kind` (``causal=True``, ``mask=``)."""
        assert_close(out, self.expected(q=q, **kind)[0], self.q_lens)


def poisoned(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """An output that fails every comparison where a kernel left it unwritten."""
    return torch.full(shape, torch.nan, dtype=dtype, device=DEVICE)


def assert_close(out: torch.Tensor, expected: torch.Tensor, rows: Sequence[int], tolerance: float = TOLERANCE) -> None:
    """The worst request's relative error is below `tolerance`; NaN is not."""
    assert out.shape == expected.shape
    for request, (got, right) in enumerate(zip(out.float().split(list(rows)), expected.split(list(rows)), strict=True)):
        error = ((got - right).norm() / right.norm()).item()
        assert error < tolerance, f"request {request} of {len(rows)}: relative error {error:.2e}"


def paged_wrapper(
    workspace: torch.Tensor,
    batch: Batch,
    *,
    graph: bool = False,
    masked: bool = False,
    made_by: Callable[..., Any] | None = None,
    **options: Any,
) -> Any:
    """The facade's paged prefill wrapper (or `made_by`'s) for `batch`; as a CUDA-graph wrapper it takes any page table.

    Its mask buffer has room to spare, as FlashInfer's SM90 verify kernel wants.
    """
    buffers: dict[str, Any] = {}
    if graph:
        requests, slots = len(batch.q_lens), batch.cache.pages * batch.cache.page_size
        buffers = {
            "use_cuda_graph": True,
            "qo_indptr_buf": torch.zeros(requests + 1, dtype=torch.int32, device=DEVICE),
            "paged_kv_indptr_buf": torch.zeros(requests + 1, dtype=torch.int32, device=DEVICE),
            "paged_kv_indices_buf": torch.zeros(batch.cache.pages, dtype=torch.int32, device=DEVICE),
            "paged_kv_last_page_len_buf": torch.zeros(requests, dtype=torch.int32, device=DEVICE),
        }
        if masked:
            packed = max(batch.q_lens) * slots // 8 + requests
            buffers["custom_mask_buf"] = torch.zeros(packed + 64, dtype=torch.uint8, device=DEVICE)
            buffers["mask_indptr_buf"] = torch.zeros(requests + 1, dtype=torch.int32, device=DEVICE)
    made_by = made_by or flashinfer.BatchPrefillWithPagedKVCacheWrapper
    return made_by(workspace, batch.cache.layout, backend="fa2", **buffers, **options)


def plan(wrapper: Any, batch: Batch, **options: Any) -> None:
    wrapper.plan(*batch.layout_arguments, **batch.dtypes, **options)


def fast_plan(wrapper: Any, batch: Batch, **options: Any) -> None:
    flashinfer.prefill.fast_prefill_plan(
        wrapper, *batch.layout_arguments, **batch.dtypes, **batch.host_arguments, **options
    )


def run(wrapper: Any, batch: Batch) -> torch.Tensor:
    """Run eagerly into a poisoned output."""
    out = poisoned(*batch.q.shape)
    wrapper.run(batch.q, batch.cache.pair, out=out)
    return out


class Captured:
    """A CUDA graph of ``wrapper.run``, and the tensors it reads and writes."""

    def __init__(self, wrapper: Any, q: torch.Tensor, cache: Cache) -> None:
        self.q, self.out = q.clone(), poisoned(*q.shape)
        pair = cache.pair
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            wrapper.run(self.q, pair, out=self.out)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            wrapper.run(self.q, pair, out=self.out)

    def replay(self, q: torch.Tensor) -> torch.Tensor:
        """The output for the queries `q`, with what the wrapper was planned for last."""
        self.q.copy_(q)
        self.out.fill_(torch.nan)
        self.graph.replay()
        return self.out.clone()

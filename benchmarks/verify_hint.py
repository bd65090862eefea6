"""The query-tile hint in a speculative verify step: CUDA-graph replay time, in microseconds.

4 query tokens a request, 4 query heads over 1 KV head, batch 10, a custom mask, page size 1, FA2; the KV cache is
larger than the L2 cache. Printed for a bf16 KV cache (head dim 128, 16k tokens a request) and an fp8 one (head dim 256,
32k tokens):

- native: FlashInfer's wrapper without the hint;
- native, hint: with plan(uniform_q_len=4), where the release has it;
- facade, hint: the same through flashinfer_compat, which has it on every release;
- facade, hint, FA2 alone: with FlashInfer's SM90 fp8-KV verify kernel switched off, so that the small query tile by
  itself can be compared between releases, across the logs of one machine.

Replays of all variants are interleaved. Run one release at a time: another process on the GPU shows in the figures.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flashinfer as native
import torch

import flashinfer_compat as flashinfer

from .measuring import Options, Row, compared, interleaved

BATCH, DRAFT_TOKENS, HEADS, DEVICE = 10, 4, 4, "cuda"
#: Replays of one measurement.
REPLAYS = 20
KINDS = {"bf16, 128, 16k": (torch.bfloat16, 128, 16384), "fp8, 256, 32k": (torch.float8_e4m3fn, 256, 32768)}
DISABLE_VERIFY_KERNEL = "FLASHINFER_DISABLE_EAGLE_VERIFY_FP8KV_SM90"


class Step:
    """One verify batch, and the graphs that compute it."""

    def __init__(self, kv_dtype: torch.dtype, head_dim: int, kv_len: int) -> None:
        self.kv_dtype, self.head_dim, self.slots = kv_dtype, head_dim, BATCH * kv_len
        self.qo_indptr = self.starts(DRAFT_TOKENS)
        self.kv_indptr = self.starts(kv_len)
        self.kv_indices = torch.randperm(self.slots, device=DEVICE).int()
        self.last_page_len = torch.ones(BATCH, dtype=torch.int32, device=DEVICE)
        self.mask = torch.rand(DRAFT_TOKENS * self.slots, device=DEVICE) < 0.9
        self.q = torch.randn(BATCH * DRAFT_TOKENS, HEADS, head_dim, dtype=torch.bfloat16, device=DEVICE)
        self.kv_cache = tuple(
            torch.randn(self.slots, 1, 1, head_dim, dtype=torch.bfloat16, device=DEVICE).to(kv_dtype) for _ in range(2)
        )

    def starts(self, length: int) -> torch.Tensor:
        return torch.arange(0, (BATCH + 1) * length, length, dtype=torch.int32, device=DEVICE)

    def captured(self, owner: Any, **options: Any) -> tuple[torch.cuda.CUDAGraph, torch.Tensor, Any]:
        """A graph of one layer's attention, its output, and the wrapper that must outlive it."""
        wrapper = owner.BatchPrefillWithPagedKVCacheWrapper(
            torch.empty(128 << 20, dtype=torch.uint8, device=DEVICE),
            use_cuda_graph=True,
            qo_indptr_buf=torch.zeros_like(self.qo_indptr),
            paged_kv_indptr_buf=torch.zeros_like(self.kv_indptr),
            paged_kv_indices_buf=torch.zeros_like(self.kv_indices),
            paged_kv_last_page_len_buf=torch.zeros_like(self.last_page_len),
            custom_mask_buf=torch.zeros(self.mask.numel() // 8 + 64, dtype=torch.uint8, device=DEVICE),
            mask_indptr_buf=torch.zeros_like(self.qo_indptr),
            backend="fa2",
        )
        wrapper.plan(
            self.qo_indptr, self.kv_indptr, self.kv_indices, self.last_page_len, HEADS, 1, self.head_dim, 1,
            custom_mask=self.mask, q_data_type=torch.bfloat16, kv_data_type=self.kv_dtype, **options,
        )  # fmt: skip
        out = torch.empty_like(self.q)
        wrapper.run(self.q, self.kv_cache, out=out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            wrapper.run(self.q, self.kv_cache, out=out)
        return graph, out, wrapper


@contextmanager
def without_verify_kernel() -> Iterator[None]:
    """FlashInfer reads the switch in plan() and in run()."""
    before = os.environ.get(DISABLE_VERIFY_KERNEL)
    os.environ[DISABLE_VERIFY_KERNEL] = "1"
    try:
        yield
    finally:
        os.environ.pop(DISABLE_VERIFY_KERNEL)
        if before is not None:
            os.environ[DISABLE_VERIFY_KERNEL] = before


def replay_time(graph: torch.cuda.CUDAGraph) -> Callable[[], float]:
    """Measures one replay, in microseconds, as the mean of `REPLAYS` in a row."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once() -> float:
        graph.replay()
        begin.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / REPLAYS * 1000

    return once


def measure(options: Options) -> list[Row]:
    torch.manual_seed(0)
    has_hint = "uniform_q_len" in inspect.signature(native.BatchPrefillWithPagedKVCacheWrapper.plan).parameters
    rows: list[Row] = []
    for kind, (kv_dtype, head_dim, kv_len) in KINDS.items():
        step = Step(kv_dtype, head_dim, kv_len)
        made = {"native": step.captured(native)}
        if has_hint:
            made["native, hint"] = step.captured(native, uniform_q_len=DRAFT_TOKENS)
        made["facade, hint"] = step.captured(flashinfer, uniform_q_len=DRAFT_TOKENS)
        if kv_dtype is torch.float8_e4m3fn:
            with without_verify_kernel():
                made["facade, hint, FA2 alone"] = step.captured(flashinfer, uniform_q_len=DRAFT_TOKENS)
        measures = {name: replay_time(graph) for name, (graph, _, _) in made.items()}
        taken = interleaved(measures, options.rounds(50), warm=5)
        reference = made["native"][1].float()
        remarks = {}
        for name, (_, out, wrapper) in made.items():
            difference = ((out.float() - reference).norm() / reference.norm()).item()
            remarks[name] = {"query tile": int(wrapper._plan_info[3]), "error to native": f"{difference:.1e}"}
        rows += compared(kind, "µs", taken, remarks=remarks)
    return rows

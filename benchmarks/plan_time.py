"""Host time of planning, in microseconds: FlashInfer's own plan() against the facade's, and against the fast plan.

The GPU is idle before each call, so that no queue is measured. Batch 32, FA2, 32 query heads over 8 KV heads, head dim
128, page size 16, 4 query tokens and about 1000 KV tokens a request, index tensors on the device. The first variant of
each group is a native call, which the others are held against.

- paged, graph: a CUDA-graph wrapper; "hint" is plan(uniform_q_len=4), against the native hint where the release has it;
- paged, captured: the same once a graph holds the wrapper's kernel, and each plan is checked against that;
- paged, eager; ragged; decode: the other wrappers (decode on tensor cores);
- fast plan: prefill.fast_prefill_plan in place of plan(), without and with a custom mask (page size 1 there);
- raw planner: the C++ planner alone, called by a list and by prefill.raw_fa2_plan.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import flashinfer as native
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat.features import supports

from .measuring import Options, Row, call_time, compared, interleaved

BATCH, HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, Q_LEN = 32, 32, 8, 128, 16, 4
#: A group's variants; the first is what the others are compared with.
Group = dict[str, Callable[[], Any]]


def starts(lengths: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.int32), lengths.cumsum(0, dtype=torch.int32)])


class Batch:
    """One batch: host and device index tensors, and wrappers for it."""

    def __init__(self, page_size: int, device: str = "cuda") -> None:
        self.page_size, self.device = page_size, device
        self.kv_lens = torch.randint(500, 1500, (BATCH,), dtype=torch.int32)
        pages = (self.kv_lens + page_size - 1) // page_size
        self.rows_host, self.kv_host = starts(torch.full((BATCH,), Q_LEN, dtype=torch.int32)), starts(pages)
        self.rows, self.kv = self.rows_host.to(self.device), self.kv_host.to(self.device)
        self.indices = torch.randperm(int(self.kv_host[-1]), device=self.device).int()
        self.last_page_len = ((self.kv_lens - 1) % page_size + 1).to(self.device)
        self.mask = torch.rand(int(self.kv_lens.sum()) * Q_LEN, device=self.device) < 0.9
        self.workspace = torch.empty(256 << 20, dtype=torch.uint8, device=self.device)
        self.dtypes = {"q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}

    @property
    def layout(self) -> tuple[Any, ...]:
        return (
            self.rows, self.kv, self.indices, self.last_page_len, HEADS, KV_HEADS, HEAD_DIM, self.page_size
        )  # fmt: skip

    @property
    def host(self) -> dict[str, Any]:
        return {
            "qo_indptr_host": self.rows_host,
            "kv_indptr_host": self.kv_host,
            "kv_lens_host": self.kv_lens,
            "max_q_len": Q_LEN,
            "max_kv_len": int(self.kv_lens.max()),
        }

    def paged(self, owner: Any, *, graph: bool = True, masked: bool = False) -> Any:
        buffers: dict[str, Any] = {}
        if graph:
            buffers = {
                "use_cuda_graph": True,
                "qo_indptr_buf": torch.zeros_like(self.rows),
                "paged_kv_indptr_buf": torch.zeros_like(self.kv),
                "paged_kv_indices_buf": torch.zeros_like(self.indices),
                "paged_kv_last_page_len_buf": torch.zeros_like(self.last_page_len),
            }
        if masked:
            buffers["custom_mask_buf"] = torch.zeros(self.mask.numel() // 8 + 64, dtype=torch.uint8, device=self.device)
            buffers["mask_indptr_buf"] = torch.zeros_like(self.rows)
        return owner.BatchPrefillWithPagedKVCacheWrapper(self.workspace, backend="fa2", **buffers)

    def plan(self, owner: Any, *, graph: bool = True, masked: bool = False, **options: Any) -> Callable[[], Any]:
        """A call of plan() on a wrapper of its own."""
        wrapper = self.paged(owner, graph=graph, masked=masked)
        mask = {"custom_mask": self.mask} if masked else {}
        return partial(wrapper.plan, *self.layout, **self.dtypes, **mask, **options)

    def fast_plan(self, *, masked: bool, **options: Any) -> Callable[[], Any]:
        wrapper = self.paged(flashinfer, masked=masked)
        mask = {"custom_mask": self.mask} if masked else {}
        wrapper.plan(*self.layout, **self.dtypes, **mask, **options)
        fast = flashinfer.prefill.fast_prefill_plan
        return partial(fast, wrapper, *self.layout, **self.dtypes, **self.host, **mask, **options)

    def captured(self, **options: Any) -> Callable[[], Any]:
        """plan() on a wrapper whose run() a graph has captured."""
        wrapper = self.paged(flashinfer)
        plan = partial(wrapper.plan, *self.layout, **self.dtypes, **options)
        plan()
        q = torch.zeros(BATCH * Q_LEN, HEADS, HEAD_DIM, dtype=torch.bfloat16, device=self.device)
        kv_cache = tuple(
            torch.zeros(
                self.indices.numel(), self.page_size, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16, device=self.device
            )
            for _ in range(2)
        )
        wrapper.run(q, kv_cache)
        torch.cuda.synchronize()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            wrapper.run(q, kv_cache)
        return plan

    def ragged(self, owner: Any, **options: Any) -> Callable[[], Any]:
        wrapper = owner.BatchPrefillWithRaggedKVCacheWrapper(self.workspace, backend="fa2")
        return partial(
            wrapper.plan, self.rows, starts(self.kv_lens).to(self.device), HEADS, KV_HEADS, HEAD_DIM,
            causal=True, q_data_type=torch.bfloat16, **options,
        )  # fmt: skip

    def decode(self, owner: Any) -> Callable[[], Any]:
        wrapper = owner.BatchDecodeWithPagedKVCacheWrapper(
            self.workspace,
            use_cuda_graph=True,
            use_tensor_cores=True,
            paged_kv_indptr_buffer=torch.zeros_like(self.kv),
            paged_kv_indices_buffer=torch.zeros_like(self.indices),
            paged_kv_last_page_len_buffer=torch.zeros_like(self.last_page_len),
            backend="fa2",
        )
        return partial(wrapper.plan, *self.layout[1:], **self.dtypes)

    def raw_list(self, owner: Any) -> Callable[[], Any]:
        """The planner called with a list, as an engine does: 20 arguments, on FlashInfer's wrapper all it takes."""
        wrapper = self.paged(owner)
        wrapper.plan(*self.layout, **self.dtypes)
        arguments = [
            wrapper._float_workspace_buffer, wrapper._int_workspace_buffer, wrapper._pin_memory_int_workspace_buffer,
            self.rows_host, self.kv_host, self.kv_lens, BATCH * Q_LEN, BATCH, HEADS, KV_HEADS, self.page_size, True,
            HEAD_DIM, HEAD_DIM, False, -1, -1, False, 0, 0,
        ]  # fmt: skip
        if owner is native and supports("prefill.fixed_uniform_q_len") == "native":
            arguments.append(False)
        return lambda: wrapper._cached_module.plan(*arguments)

    def raw_fa2_plan(self) -> Callable[[], Any]:
        wrapper = self.paged(flashinfer)
        wrapper.plan(*self.layout, **self.dtypes)
        return partial(
            flashinfer.prefill.raw_fa2_plan, wrapper,
            qo_indptr_host=self.rows_host, kv_indptr_host=self.kv_host, kv_lens_host=self.kv_lens,
            total_num_rows=BATCH * Q_LEN, batch_size=BATCH, num_qo_heads=HEADS, num_kv_heads=KV_HEADS,
            page_size=self.page_size, enable_cuda_graph=True, head_dim_qk=HEAD_DIM, head_dim_vo=HEAD_DIM, causal=False,
        )  # fmt: skip


def native_hint(batch: Batch) -> Group:
    """The native plan() with the hint, where the release has it, and without it elsewhere."""
    has_hint = "uniform_q_len" in inspect.signature(native.BatchPrefillWithPagedKVCacheWrapper.plan).parameters
    return {"native, hint": batch.plan(native, uniform_q_len=Q_LEN)} if has_hint else {"native": batch.plan(native)}


def groups() -> dict[str, Group]:
    batch, unpaged = Batch(PAGE_SIZE), Batch(1)
    hint: dict[str, Any] = {"uniform_q_len": Q_LEN}
    host_indptr = {"qo_indptr_cpu": batch.rows_host, "kv_indptr_cpu": starts(batch.kv_lens)}
    return {
        "paged, graph": {"native": batch.plan(native), "facade": batch.plan(flashinfer)},
        "paged, graph, hint": {**native_hint(batch), "facade, hint": batch.plan(flashinfer, **hint)},
        "paged, captured": {"native": batch.plan(native), "facade": batch.captured()},
        "paged, captured, hint": {**native_hint(batch), "facade, hint": batch.captured(**hint)},
        "paged, eager": {"native": batch.plan(native, graph=False), "facade": batch.plan(flashinfer, graph=False)},
        "ragged, eager": {
            "native": batch.ragged(native),
            "facade": batch.ragged(flashinfer),
            "facade, host indptr": batch.ragged(flashinfer, **host_indptr),
        },
        "decode, graph": {"native": batch.decode(native), "facade": batch.decode(flashinfer)},
        "fast plan": {
            "native plan()": batch.plan(native),
            "facade plan(), hint": batch.plan(flashinfer, **hint),
            "fast_prefill_plan": batch.fast_plan(masked=False),
            "fast_prefill_plan, hint": batch.fast_plan(masked=False, **hint),
        },
        "fast plan, mask": {
            "native plan()": unpaged.plan(native, masked=True),
            "facade plan(), hint": unpaged.plan(flashinfer, masked=True, **hint),
            "fast_prefill_plan": unpaged.fast_plan(masked=True),
            "fast_prefill_plan, hint": unpaged.fast_plan(masked=True, **hint),
        },
        "raw planner": {
            "native, list": batch.raw_list(native),
            "facade, list of 20": batch.raw_list(flashinfer),
            "raw_fa2_plan": batch.raw_fa2_plan(),
        },
    }


def measure(options: Options) -> list[Row]:
    torch.manual_seed(0)
    rows: list[Row] = []
    for name, group in groups().items():
        measures = {variant: call_time(call, before=torch.cuda.synchronize) for variant, call in group.items()}
        rows += compared(name, "µs", interleaved(measures, options.rounds(400), warm=20))
    return rows

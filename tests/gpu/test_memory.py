"""The facade's wrappers take no device memory beyond FlashInfer's own, and give all of it back at once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import flashinfer as native
import pytest
import torch

import flashinfer_compat as flashinfer

from .reference import Batch, Cache, fast_plan, paged_wrapper, plan, run

pytestmark = pytest.mark.gpu

HEAD_DIM = 128
PREFILL = "BatchPrefillWithPagedKVCacheWrapper"
DECODE = "BatchDecodeWithPagedKVCacheWrapper"


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """What a reference cycle held would stay."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def batch() -> Batch:
    return Batch(Cache(3000, 1, HEAD_DIM, 1), [4] * 5, [257, 1024, 5, 600, 33], 4)


def prefill(workspace: torch.Tensor, batch: Batch, owner: Any, *, graph: bool) -> Any:
    wrapper = paged_wrapper(workspace, batch, graph=graph, masked=True, made_by=getattr(owner, PREFILL))
    plan(wrapper, batch, custom_mask=batch.mask())
    return wrapper


def decode(workspace: torch.Tensor, batch: Batch, owner: Any, *, graph: bool) -> Any:
    buffers: dict[str, Any] = {}
    if graph:
        buffers = {
            "use_cuda_graph": True,
            "paged_kv_indptr_buffer": torch.zeros_like(batch.kv_indptr),
            "paged_kv_indices_buffer": torch.zeros_like(batch.kv_indices),
            "paged_kv_last_page_len_buffer": torch.zeros_like(batch.last_page_len),
        }
    wrapper = getattr(owner, DECODE)(workspace, use_tensor_cores=True, backend="fa2", **buffers)
    wrapper.plan(*batch.layout_arguments[1:], **batch.dtypes)
    return wrapper


def ragged(workspace: torch.Tensor, batch: Batch, owner: Any, *, graph: bool) -> Any:
    buffers: dict[str, Any] = {}
    if graph:
        buffers = {
            "use_cuda_graph": True,
            "qo_indptr_buf": torch.zeros_like(batch.qo_indptr),
            "kv_indptr_buf": torch.zeros_like(batch.kv_indptr),
        }
    wrapper = owner.BatchPrefillWithRaggedKVCacheWrapper(workspace, backend="fa2", **buffers)
    wrapper.plan(batch.qo_indptr, batch.kv_indptr, 4, 1, HEAD_DIM, q_data_type=torch.bfloat16)
    return wrapper


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph wrapper"])
@pytest.mark.parametrize("make", [prefill, decode, ragged])
def test_holds_what_flashinfers_wrapper_holds(workspace: torch.Tensor, batch: Batch, make: Any, graph: bool) -> None:
    make(workspace, batch, native, graph=graph)  # caches of FlashInfer's own, filled once
    held = []
    for owner in (native, flashinfer, native):
        before = torch.cuda.memory_allocated()
        wrapper = make(workspace, batch, owner, graph=graph)
        held.append(torch.cuda.memory_allocated() - before)
        del wrapper
        assert torch.cuda.memory_allocated() == before
    assert held[0] == held[1] == held[2] > 0


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph wrapper"])
def test_is_freed_at_once(workspace: torch.Tensor, batch: Batch, graph: bool) -> None:
    """After a hinted plan, a run and, for a graph wrapper, a fast plan with its own small buffers."""
    run(prefill(workspace, batch, native, graph=graph), batch)
    before = torch.cuda.memory_allocated()
    wrapper, mask = paged_wrapper(workspace, batch, graph=graph, masked=True), batch.mask()
    plan(wrapper, batch, custom_mask=mask, uniform_q_len=4)
    if graph:
        fast_plan(wrapper, batch, custom_mask=mask, uniform_q_len=4)
    run(wrapper, batch)
    gone = weakref.ref(wrapper)
    del wrapper, mask
    assert gone() is None
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("owner", [native, flashinfer], ids=["native", "facade"])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph wrapper"])
def test_a_replaced_workspace_is_given_back(batch: Batch, owner: Any, graph: bool) -> None:
    """``reset_workspace_buffer`` drops the old buffers at once, not with the next plan."""
    size = 64 << 20
    wrapper = prefill(torch.empty(size, dtype=torch.uint8, device=batch.q.device), batch, owner, graph=graph)
    before = torch.cuda.memory_allocated()
    wrapper.reset_workspace_buffer(*(torch.empty(1024, dtype=torch.uint8, device=batch.q.device) for _ in range(2)))
    assert before - torch.cuda.memory_allocated() >= size

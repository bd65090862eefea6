"""Arguments that older releases lack or misread, each computed with: the newest meaning on every release."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat import InvalidPlan

from .reference import (
    DEVICE,
    Batch,
    Cache,
    Captured,
    assert_close,
    attention,
    causal_mask,
    indptr,
    paged_wrapper,
    plan,
    poisoned,
    run,
)

pytestmark = pytest.mark.gpu

HEAD_DIM, Q_LENS, KV_LENS = 128, [3, 1, 40, 7], [50, 900, 40, 333]


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, every other element of a buffer that holds wrong ones in between."""
    wide = torch.full((tensor.numel(), 2), 1, dtype=tensor.dtype, device=tensor.device)
    wide[:, 0] = tensor
    return wide[:, 0]


def paged_batch() -> Batch:
    return Batch(Cache(120, 2, HEAD_DIM, 16), Q_LENS, KV_LENS, 8)


class Ragged:
    """A ragged batch and its attention."""

    def __init__(self) -> None:
        self.q = torch.randn(sum(Q_LENS), 8, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE)
        self.k, self.v = (torch.randn(sum(KV_LENS), 2, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
        self.rows, self.kv = indptr(Q_LENS), indptr(KV_LENS)

    def run(self, workspace: torch.Tensor, rows: torch.Tensor, kv: torch.Tensor, **options: Any) -> torch.Tensor:
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, backend="fa2")
        wrapper.plan(rows, kv, 8, 2, HEAD_DIM, causal=True, q_data_type=torch.bfloat16, **options)
        out = poisoned(*self.q.shape)
        wrapper.run(self.q, self.k, self.v, out=out)
        return out

    def assert_right(self, out: torch.Tensor) -> None:
        parts = zip(self.q.split(Q_LENS), self.k.split(KV_LENS), self.v.split(KV_LENS), strict=True)
        expected = [attention(q, k, v, HEAD_DIM**-0.5, causal_mask(len(q), len(k)))[0] for q, k, v in parts]
        assert_close(out, torch.cat(expected), Q_LENS)


class TestStridedIndices:
    """Read through raw pointers as if dense before 0.7.4 (FlashInfer #5260)."""

    @pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph wrapper"])
    def test_paged(self, workspace: torch.Tensor, graph: bool) -> None:
        batch = paged_batch()
        wrapper = paged_wrapper(workspace, batch, graph=graph)
        plan(wrapper, batch, causal=True)
        dense = run(wrapper, batch)
        wrapper = paged_wrapper(workspace, batch, graph=graph)
        tensors, rest = batch.layout_arguments[:4], batch.layout_arguments[4:]
        wrapper.plan(*map(strided, tensors), *rest, **batch.dtypes, causal=True)
        assert torch.equal(run(wrapper, batch), dense)
        batch.assert_right(dense, causal=True)

    def test_paged_on_the_host(self, workspace: torch.Tensor) -> None:
        batch = paged_batch()
        wrapper = paged_wrapper(workspace, batch)
        host = (batch.qo_indptr_host, batch.kv_indptr_host, batch.kv_indices, batch.last_page_len_host)
        wrapper.plan(*map(strided, host), *batch.layout_arguments[4:], **batch.dtypes, causal=True)
        batch.assert_right(run(wrapper, batch), causal=True)

    def test_ragged(self, workspace: torch.Tensor) -> None:
        ragged = Ragged()
        dense = ragged.run(workspace, ragged.rows.to(DEVICE), ragged.kv.to(DEVICE))
        for device in ("cpu", DEVICE):
            rows, kv = strided(ragged.rows.to(device)), strided(ragged.kv.to(device))
            assert torch.equal(ragged.run(workspace, rows, kv), dense)
        ragged.assert_right(dense)

    @pytest.mark.parametrize("tensor_cores", [False, True], ids=["CUDA cores", "tensor cores"])
    def test_decode(self, workspace: torch.Tensor, tensor_cores: bool) -> None:
        batch = Batch(Cache(120, 2, HEAD_DIM, 16), [1] * 4, KV_LENS, 8)
        tensors, rest = batch.layout_arguments[1:4], batch.layout_arguments[4:]
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, use_tensor_cores=tensor_cores, backend="fa2")
        wrapper.plan(*map(strided, tensors), *rest, **batch.dtypes)
        batch.assert_right(run(wrapper, batch))


class TestRaggedHostIndptr:
    """``qo_indptr_cpu`` and ``kv_indptr_cpu``, from 0.7.4."""

    def test_both(self, workspace: torch.Tensor) -> None:
        ragged = Ragged()
        rows, kv = ragged.rows.to(DEVICE), ragged.kv.to(DEVICE)
        out = ragged.run(workspace, rows, kv, qo_indptr_cpu=ragged.rows, kv_indptr_cpu=ragged.kv)
        ragged.assert_right(out)
        assert torch.equal(out, ragged.run(workspace, rows, kv))

    def test_one_of_them(self, workspace: torch.Tensor) -> None:
        ragged = Ragged()
        rows, kv = ragged.rows.to(DEVICE), ragged.kv.to(DEVICE)
        ragged.assert_right(ragged.run(workspace, rows, kv, qo_indptr_cpu=ragged.rows))
        ragged.assert_right(ragged.run(workspace, rows, kv, kv_indptr_cpu=ragged.kv))

    def test_with_a_custom_mask(self, workspace: torch.Tensor) -> None:
        ragged = Ragged()
        rows, kv = ragged.rows.to(DEVICE), ragged.kv.to(DEVICE)
        mask = torch.cat([causal_mask(q, k).flatten() for q, k in zip(Q_LENS, KV_LENS, strict=True)])
        out = ragged.run(workspace, rows, kv, custom_mask=mask, qo_indptr_cpu=ragged.rows, kv_indptr_cpu=ragged.kv)
        ragged.assert_right(out)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph wrapper"])
def test_max_sequence_kv(workspace: torch.Tensor, graph: bool) -> None:
    """A bound that only cuDNN reads; with FA2 it ends 0.7.1's plan() in UnboundLocalError."""
    batch = paged_batch()
    wrapper = paged_wrapper(workspace, batch, graph=graph)
    plan(wrapper, batch, causal=True, max_sequence_kv=1024)
    batch.assert_right(run(wrapper, batch), causal=True)


class TestMaxTotalNumRows:
    """The rows that a CUDA-graph wrapper is captured for, from 0.7.4; before, the first plan fixed them."""

    def test_a_small_plan_first(self, workspace: torch.Tensor) -> None:
        cache = Cache(120, 2, HEAD_DIM, 16)
        small, full = Batch(cache, [2, 1, 3, 1], KV_LENS, 8), Batch(cache, [30, 1, 26, 7], KV_LENS, 8)
        wrapper = paged_wrapper(workspace, small, graph=True, max_total_num_rows=64)
        plan(wrapper, small, causal=True)
        q, out = torch.zeros_like(full.q), poisoned(*full.q.shape)
        q[: len(small.q)] = small.q
        # Captured on the first rows of the buffers; the kernel is launched for all 64.
        wrapper.run(q[: len(small.q)], cache.pair, out=out[: len(small.q)])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            wrapper.run(q[: len(small.q)], cache.pair, out=out[: len(small.q)])
        for batch in (full, small):
            plan(wrapper, batch, causal=True)
            q[: len(batch.q)] = batch.q
            out.fill_(torch.nan)
            graph.replay()
            batch.assert_right(out[: len(batch.q)], causal=True)

    def test_more_rows_are_refused(self, workspace: torch.Tensor) -> None:
        batch = paged_batch()
        wrapper = paged_wrapper(workspace, batch, graph=True, max_total_num_rows=sum(Q_LENS) - 1)
        with pytest.raises(ValueError, match="51"):
            plan(wrapper, batch, causal=True)

    def test_needs_a_graph(self, workspace: torch.Tensor) -> None:
        with pytest.raises(ValueError, match="max_total_num_rows requires use_cuda_graph"):
            paged_wrapper(workspace, paged_batch(), max_total_num_rows=64)


class TestWorkspaceSize:
    """``workspace_size(uniform_q_len=)``: what the hinted plan takes, to the byte, and less than without the hint."""

    @pytest.fixture
    def batch(self) -> Batch:
        return Batch(Cache(2000, 1, HEAD_DIM, 1), [4] * 5, [257, 1024, 5, 600, 33], 4)

    @pytest.fixture
    def wrapper(self, workspace: torch.Tensor, batch: Batch) -> Any:
        return paged_wrapper(workspace, batch, graph=True, masked=True)

    @staticmethod
    def sizes(wrapper: Any, batch: Batch, **options: Any) -> tuple[int, int]:
        size: tuple[int, int] = wrapper.workspace_size(*batch.layout_arguments, **batch.dtypes, **options)
        return size

    @staticmethod
    def give(wrapper: Any, *sizes: int) -> None:
        wrapper.reset_workspace_buffer(*(torch.empty(size, dtype=torch.uint8, device=DEVICE) for size in sizes))

    @pytest.mark.parametrize("hint", [4, None])
    def test_is_enough(self, wrapper: Any, batch: Batch, hint: int | None) -> None:
        self.give(wrapper, *self.sizes(wrapper, batch, uniform_q_len=hint))
        mask = batch.mask()
        plan(wrapper, batch, custom_mask=mask, uniform_q_len=hint)
        captured = Captured(wrapper, batch.q, batch.cache)
        batch.assert_right(captured.replay(batch.q), mask=mask)

    @pytest.mark.parametrize("short", [(1, 0), (0, 1)], ids=["float", "int"])
    def test_a_byte_less_is_not(self, wrapper: Any, batch: Batch, short: tuple[int, int]) -> None:
        sizes = self.sizes(wrapper, batch, uniform_q_len=4)
        self.give(wrapper, *(size - less for size, less in zip(sizes, short, strict=True)))
        with pytest.raises(Exception, match="Buffer overflow"):
            plan(wrapper, batch, custom_mask=batch.mask(), uniform_q_len=4)

    def test_the_hint_saves_some(self, wrapper: Any, batch: Batch) -> None:
        hinted, plain = (self.sizes(wrapper, batch, uniform_q_len=hint) for hint in (4, None))
        assert hinted[0] < plain[0]

    def test_a_captured_wrapper_is_left_alone(self, wrapper: Any, batch: Batch) -> None:
        """The size query is no plan: it neither warns of nor changes what is captured."""
        mask = batch.mask()
        plan(wrapper, batch, custom_mask=mask)
        captured = Captured(wrapper, batch.q, batch.cache)
        self.sizes(wrapper, batch, uniform_q_len=4)
        batch.assert_right(captured.replay(batch.q), mask=mask)


def test_host_tensors_are_checked_before_a_kernel_reads_them(workspace: torch.Tensor) -> None:
    ragged = Ragged()
    with pytest.raises((InvalidPlan, ValueError)):
        ragged.run(workspace, ragged.rows.to(DEVICE), ragged.kv.to(DEVICE), qo_indptr_cpu=ragged.rows[:-1])

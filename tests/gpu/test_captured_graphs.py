"""A captured graph keeps its query tile: later plans carry it, or are refused before a replay could go wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat import CompatWarning, InvalidPlan

from .reference import CTA_TILE_Q, DEVICE, SPLIT_KV, Batch, Cache, Captured, indptr, paged_wrapper, plan

pytestmark = pytest.mark.gpu

DRAFT_TOKENS, HEADS, HEAD_DIM = 4, 4, 128
KV_LENS, OTHER_KV_LENS = [257, 1024, 5, 600, 33], [1000, 6, 300, 45, 801]


class Verify:
    """A captured verify step, planned with `hint`, and the cache to plan other batches on."""

    def __init__(self, workspace: torch.Tensor, hint: int | None) -> None:
        self.cache = Cache(3000, 1, HEAD_DIM, 1)
        first = self.batch(KV_LENS)
        self.wrapper = paged_wrapper(workspace, first, graph=True, masked=True)
        plan(self.wrapper, first, custom_mask=first.mask(), uniform_q_len=hint)
        self.captured = Captured(self.wrapper, first.q, self.cache)

    def batch(self, kv_lens: list[int], q_lens: list[int] | None = None) -> Batch:
        return Batch(self.cache, q_lens or [DRAFT_TOKENS] * len(kv_lens), kv_lens, HEADS)

    def assert_plan_serves(self, **options: Any) -> torch.Tensor:
        """Plan another batch with `options` and replay it; its output."""
        batch = self.batch(OTHER_KV_LENS)
        mask = batch.mask()
        plan(self.wrapper, batch, custom_mask=mask, **options)
        out = self.captured.replay(batch.q)
        batch.assert_right(out, mask=mask)
        return out


@pytest.fixture
def hinted(workspace: torch.Tensor) -> Verify:
    return Verify(workspace, DRAFT_TOKENS)


@pytest.fixture
def unhinted(workspace: torch.Tensor) -> Verify:
    return Verify(workspace, None)


def test_the_hint_is_carried(hinted: Verify) -> None:
    batch = hinted.batch(OTHER_KV_LENS)
    mask = batch.mask()
    outs = []
    for options in ({"uniform_q_len": DRAFT_TOKENS}, {}, {"uniform_q_len": None}, {"uniform_q_len": 0}):
        plan(hinted.wrapper, batch, custom_mask=mask, **options)
        assert hinted.wrapper._plan_info[CTA_TILE_Q] == 16
        outs.append(hinted.captured.replay(batch.q))
        batch.assert_right(outs[-1], mask=mask)
    assert all(torch.equal(out, outs[0]) for out in outs)


@pytest.mark.parametrize("hint", [None, DRAFT_TOKENS])
def test_a_batch_of_other_query_lengths_is_refused(hinted: Verify, hint: int | None) -> None:
    uneven = hinted.batch(OTHER_KV_LENS, [4, 4, 3, 4, 4])
    with pytest.raises(InvalidPlan, match="captured with uniform_q_len=4.*has other query lengths"):
        plan(hinted.wrapper, uneven, custom_mask=uneven.mask(), uniform_q_len=hint)
    hinted.assert_plan_serves()


def test_another_hint_is_refused(hinted: Verify) -> None:
    shorter = hinted.batch(OTHER_KV_LENS, [2] * 5)
    with pytest.raises(InvalidPlan, match="captured with uniform_q_len=4.*asks for 2"):
        plan(hinted.wrapper, shorter, custom_mask=shorter.mask(), uniform_q_len=2)
    hinted.assert_plan_serves(uniform_q_len=DRAFT_TOKENS)


def test_a_hint_that_was_not_captured_is_left_out(unhinted: Verify) -> None:
    with pytest.warns(CompatWarning, match="captured without uniform_q_len"):
        warned = unhinted.assert_plan_serves(uniform_q_len=DRAFT_TOKENS)
    assert unhinted.wrapper._plan_info[CTA_TILE_Q] == 64
    assert warned.isfinite().all()


def test_a_batch_of_other_query_lengths_is_served_without_a_hint(unhinted: Verify) -> None:
    batch = unhinted.batch(OTHER_KV_LENS, [1, 4, 9, 2, 4])
    mask = batch.mask()
    plan(unhinted.wrapper, batch, custom_mask=mask)
    batch.assert_right(unhinted.captured.replay(batch.q), mask=mask)


def test_a_plan_for_another_kernel_is_refused(hinted: Verify) -> None:
    """Without split KV the merge kernel of the captured graph would read partial outputs that nobody writes."""
    assert hinted.wrapper._plan_info[SPLIT_KV]
    batch = hinted.batch(OTHER_KV_LENS)
    with pytest.raises(InvalidPlan, match="needs another kernel"):
        plan(hinted.wrapper, batch, custom_mask=batch.mask(), uniform_q_len=DRAFT_TOKENS, disable_split_kv=True)
    hinted.assert_plan_serves(uniform_q_len=DRAFT_TOKENS)


def test_captured_without_split_kv(workspace: torch.Tensor) -> None:
    """The deterministic mode of engines: captured and replanned with ``disable_split_kv``, both plans agree."""
    cache = Cache(3000, 1, HEAD_DIM, 1)
    batch = Batch(cache, [DRAFT_TOKENS] * 5, KV_LENS, HEADS)
    wrapper = paged_wrapper(workspace, batch, graph=True, masked=True)
    options = {"uniform_q_len": DRAFT_TOKENS, "disable_split_kv": True}
    plan(wrapper, batch, custom_mask=batch.mask(), **options)
    assert not wrapper._plan_info[SPLIT_KV]
    captured = Captured(wrapper, batch.q, cache)
    other = Batch(cache, [DRAFT_TOKENS] * 5, OTHER_KV_LENS, HEADS)
    mask = other.mask()
    plan(wrapper, other, custom_mask=mask, **options)
    other.assert_right(captured.replay(other.q), mask=mask)


@pytest.mark.parametrize("by_name", [False, True], ids=["list of 20", "raw_fa2_plan"])
@pytest.mark.parametrize("hint", [None, DRAFT_TOKENS])
def test_an_engines_own_fast_plan(workspace: torch.Tensor, hint: int | None, by_name: bool) -> None:
    """20 raw arguments, the last of them zero, on releases that take 20 and 21; a captured hint is carried."""
    verify = Verify(workspace, hint)
    wrapper, batch = verify.wrapper, verify.batch(OTHER_KV_LENS)
    tile = wrapper._plan_info[CTA_TILE_Q]
    # plan() fills the device buffers; its schedule is thrown away and made anew.
    mask = batch.mask()
    plan(wrapper, batch, custom_mask=mask)
    wrapper._int_workspace_buffer.fill_(0xFF)
    arguments = {
        "qo_indptr_host": batch.qo_indptr_host,
        "kv_indptr_host": batch.kv_indptr_host,
        "kv_lens_host": batch.kv_lens_host,
        "total_num_rows": wrapper._max_total_num_rows,
        "batch_size": len(KV_LENS),
        "num_qo_heads": HEADS,
        "num_kv_heads": 1,
        "page_size": 1,
        "enable_cuda_graph": True,
        "head_dim_qk": HEAD_DIM,
        "head_dim_vo": HEAD_DIM,
        "causal": False,
    }
    if by_name:
        plan_info = flashinfer.prefill.raw_fa2_plan(wrapper, **arguments)
    else:
        buffers = ("_float_workspace_buffer", "_int_workspace_buffer", "_pin_memory_int_workspace_buffer")
        window_left, fixed_split_size, disable_split_kv, num_colocated_ctas, uniform_q_len = -1, -1, False, 0, 0
        plan_info = wrapper._cached_module.plan(
            *(getattr(wrapper, name) for name in buffers), *arguments.values(),
            window_left, fixed_split_size, disable_split_kv, num_colocated_ctas, uniform_q_len,
        )  # fmt: skip
    wrapper._plan_info = plan_info
    assert plan_info[CTA_TILE_Q] == tile
    batch.assert_right(verify.captured.replay(batch.q), mask=mask)


@pytest.mark.parametrize("fast", [False, True], ids=["plan", "fast_decode_plan"])
def test_captured_decode(workspace: torch.Tensor, fast: bool) -> None:
    """Tensor-core decode: replanned by plan() or by FlashInfer's own fast_decode_plan, through the facade's wrapper."""
    cache = Cache(600, 2, HEAD_DIM, 16)
    batches = [Batch(cache, [1] * 5, kv_lens, 8) for kv_lens in (KV_LENS, OTHER_KV_LENS, [1] * 5)]
    buffers = [torch.zeros(size, dtype=torch.int32, device=DEVICE) for size in (6, 600, 5)]
    names = ("paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace, use_cuda_graph=True, use_tensor_cores=True, backend="fa2", **dict(zip(names, buffers, strict=True))
    )
    wrapper.plan(*batches[0].layout_arguments[1:], **batches[0].dtypes)
    captured = Captured(wrapper, batches[0].q, cache)
    for batch in batches:
        arguments = batch.layout_arguments[1:]
        if fast:
            # The engine fills the buffers itself; only the schedule is left to plan.
            for buffer, values in zip(buffers, arguments, strict=False):
                buffer[: len(values)].copy_(values)
            host = indptr([-(-length // 16) for length in batch.kv_lens])
            flashinfer.decode.fast_decode_plan(wrapper, *arguments, **batch.dtypes, global_override_indptr_cpu=host)
        else:
            wrapper.plan(*arguments, **batch.dtypes)
        batch.assert_right(captured.replay(batch.q))

"""``prefill.fast_prefill_plan`` on captured graphs: the plan that ``plan()`` makes, without waiting and allocating."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from .reference import Batch, Cache, Captured, fast_plan, paged_wrapper, plan

pytestmark = pytest.mark.gpu

REQUESTS, DRAFT_TOKENS, HEADS, LONGEST = 5, 4, 4, 1500
#: KV lengths of successive steps: growing, shrinking, very uneven. The captured grid is the same for all.
STEPS = [[64] * 5, [1500, 4, 77, 900, 12], [5, 5, 1300, 5, 1400], [700, 701, 702, 703, 704]]
#: About a fifth of a second on the GPU, a thousand times a plan's host time.
BUSY_CYCLES = 400_000_000

KINDS = pytest.mark.parametrize(
    ("head_dim", "kv_dtype", "hint", "masked"),
    [
        (128, torch.bfloat16, DRAFT_TOKENS, True),
        (128, torch.bfloat16, DRAFT_TOKENS, False),
        (128, torch.bfloat16, None, True),
        (256, torch.float8_e4m3fn, DRAFT_TOKENS, True),
    ],
    ids=["hint, mask", "hint", "mask", "fp8 KV, hint, mask"],
)


def verify_cache(head_dim: int = 128, kv_dtype: torch.dtype = torch.bfloat16) -> Cache:
    return Cache(REQUESTS * LONGEST, 1, head_dim, 1, dtype=kv_dtype)


def step(cache: Cache, kv_lens: list[int]) -> Batch:
    return Batch(cache, [DRAFT_TOKENS] * REQUESTS, kv_lens, HEADS)


@contextmanager
def synchronisation_is_an_error() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def allocations() -> int:
    """How often device memory has been handed out so far."""
    return int(torch.cuda.memory_stats()["allocation.all.allocated"])


def busy() -> torch.cuda.Event:
    """Keep the GPU busy; the event behind it."""
    torch.cuda._sleep(BUSY_CYCLES)
    done = torch.cuda.Event()
    done.record()
    return done


@KINDS
def test_replays_are_right_and_those_of_plan(
    workspace: torch.Tensor, head_dim: int, kv_dtype: torch.dtype, hint: int | None, masked: bool
) -> None:
    cache = verify_cache(head_dim, kv_dtype)
    first = step(cache, STEPS[0])
    wrapper = paged_wrapper(workspace, first, graph=True, masked=masked)
    kind: dict[str, Any] = {"custom_mask": first.mask()} if masked else {"causal": True}
    plan(wrapper, first, uniform_q_len=hint, **kind)
    captured = Captured(wrapper, first.q, cache)
    for kv_lens in [*STEPS, STEPS[0]]:
        batch = step(cache, kv_lens)
        mask = batch.mask() if masked else None
        kind = {"custom_mask": mask} if masked else {"causal": True}
        fast_plan(wrapper, batch, uniform_q_len=hint, **kind)
        fast = captured.replay(batch.q)
        batch.assert_right(fast, mask=mask, causal=not masked)
        plan(wrapper, batch, uniform_q_len=hint, **kind)
        assert torch.equal(captured.replay(batch.q), fast)


def test_paged_by_more_than_a_token(workspace: torch.Tensor) -> None:
    """Pages of 16, GQA 4:1, uneven query lengths: an engine's captured extend step."""
    cache = Cache(400, 2, 128, 16)
    q_lens = [[7, 1, 30, 2], [10, 10, 10, 10], [1, 1, 1, 1]]
    kv_lens = [[64, 1000, 40, 3], [10, 999, 500, 16], [1, 2, 1500, 17]]
    batches = [Batch(cache, q, kv, 8) for q, kv in zip(q_lens, kv_lens, strict=True)]
    wrapper = paged_wrapper(workspace, batches[0], graph=True)
    plan(wrapper, batches[0], causal=True)
    captured = Captured(wrapper, batches[0].q, cache)
    for batch in [*batches, batches[0]]:
        padded = torch.zeros_like(batches[0].q)
        padded[: len(batch.q)] = batch.q
        fast_plan(wrapper, batch, causal=True)
        batch.assert_right(captured.replay(padded)[: len(batch.q)], causal=True)


@pytest.mark.parametrize("masked", [True, False], ids=["mask", "no mask"])
def test_neither_synchronises_nor_allocates(workspace: torch.Tensor, masked: bool) -> None:
    cache = verify_cache()
    batches = [step(cache, kv_lens) for kv_lens in STEPS[1:]]
    wrapper = paged_wrapper(workspace, batches[0], graph=True, masked=masked)
    kinds = [{"custom_mask": batch.mask()} if masked else {} for batch in batches]
    plan(wrapper, batches[0], uniform_q_len=DRAFT_TOKENS, **kinds[0])
    captured = Captured(wrapper, batches[0].q, cache)
    fast_plan(wrapper, batches[0], uniform_q_len=DRAFT_TOKENS, **kinds[0])
    torch.cuda.synchronize()
    for batch, kind in zip(batches, kinds, strict=True):
        before = allocations()
        with synchronisation_is_an_error():
            fast_plan(wrapper, batch, uniform_q_len=DRAFT_TOKENS, **kind)
        assert allocations() == before
        mask = kind.get("custom_mask")
        batch.assert_right(captured.replay(batch.q), mask=mask)


@pytest.mark.parametrize("masked", [True, False], ids=["mask", "no mask"])
def test_leaves_the_queue_undrained(workspace: torch.Tensor, masked: bool) -> None:
    """Neither PyTorch nor the planner waits: the GPU is still busy when the call returns. plan() would have waited."""
    batch = step(verify_cache(), STEPS[1])
    wrapper = paged_wrapper(workspace, batch, graph=True, masked=masked)
    kind = {"custom_mask": batch.mask()} if masked else {}
    plan(wrapper, batch, uniform_q_len=DRAFT_TOKENS, **kind)
    fast_plan(wrapper, batch, uniform_q_len=DRAFT_TOKENS, **kind)
    torch.cuda.synchronize()
    done = busy()
    fast_plan(wrapper, batch, uniform_q_len=DRAFT_TOKENS, **kind)
    assert not done.query()
    plan(wrapper, batch, uniform_q_len=DRAFT_TOKENS, **kind)
    assert done.query()


def test_replans_may_queue_up(workspace: torch.Tensor) -> None:
    """Plans are made ahead of a GPU that lags behind: each replay still runs on the schedule planned for it."""
    cache = verify_cache()
    batches = [step(cache, kv_lens) for kv_lens in STEPS]
    masks = [batch.mask() for batch in batches]
    wrapper = paged_wrapper(workspace, batches[0], graph=True, masked=True)
    plan(wrapper, batches[0], uniform_q_len=DRAFT_TOKENS, custom_mask=masks[0])
    captured = Captured(wrapper, batches[0].q, cache)
    fast_plan(wrapper, batches[0], uniform_q_len=DRAFT_TOKENS, custom_mask=masks[0])
    torch.cuda.synchronize()
    busy()
    outs = []
    for batch, mask in zip(batches, masks, strict=True):
        fast_plan(wrapper, batch, uniform_q_len=DRAFT_TOKENS, custom_mask=mask)
        outs.append(captured.replay(batch.q))
    for batch, mask, out in zip(batches, masks, outs, strict=True):
        batch.assert_right(out, mask=mask)

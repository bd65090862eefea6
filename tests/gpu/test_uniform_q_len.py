"""The ``uniform_q_len`` hint in a speculative verify step: right numbers, the small query tile in captured graphs."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import flashinfer_compat as flashinfer

from .reference import (
    CTA_TILE_Q,
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

#: EAGLE verify on one rank: 4 draft tokens a request, 4 query heads over 1 KV head, page size 1, a custom mask.
DRAFT_TOKENS, HEADS = 4, 4
KV_LENS = [257, 1024, 5, 600, 33]
#: At 5 requests the worst case without a hint, (20 - 5 + 1) rows of 4 heads, just fits the 64-row tile at any head dim.
UNHINTED_TILE, HINTED_TILE = 64, 16
DISABLE_VERIFY_KERNEL = "FLASHINFER_DISABLE_EAGLE_VERIFY_FP8KV_SM90"

KINDS = pytest.mark.parametrize(
    ("head_dim", "kv_dtype"), [(128, torch.bfloat16), (256, torch.float8_e4m3fn)], ids=["bf16", "fp8 KV"]
)


def verify_batch(head_dim: int, kv_dtype: torch.dtype, kv_lens: list[int] | None = None) -> Batch:
    kv_lens = KV_LENS if kv_lens is None else kv_lens
    cache = Cache(sum(kv_lens) + 50, 1, head_dim, 1, dtype=kv_dtype)
    return Batch(cache, [DRAFT_TOKENS] * len(kv_lens), kv_lens, HEADS)


@KINDS
@pytest.mark.parametrize("verify_kernel", [True, False], ids=["verify kernel", "FA2 alone"])
@pytest.mark.parametrize("hint", [None, DRAFT_TOKENS], ids=["no hint", "hint"])
def test_eager(
    workspace: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
    head_dim: int,
    kv_dtype: torch.dtype,
    hint: int | None,
    verify_kernel: bool,
) -> None:
    monkeypatch.setenv(DISABLE_VERIFY_KERNEL, "" if verify_kernel else "1")
    batch = verify_batch(head_dim, kv_dtype)
    wrapper, mask = paged_wrapper(workspace, batch), batch.mask()
    plan(wrapper, batch, custom_mask=mask, uniform_q_len=hint)
    batch.assert_right(run(wrapper, batch), mask=mask)
    # An eager plan sees the query lengths, hint or not.
    assert wrapper._plan_info[CTA_TILE_Q] == HINTED_TILE


@KINDS
@pytest.mark.parametrize("verify_kernel", [True, False], ids=["verify kernel", "FA2 alone"])
@pytest.mark.parametrize(("hint", "tile"), [(None, UNHINTED_TILE), (DRAFT_TOKENS, HINTED_TILE)])
def test_captured(
    workspace: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
    head_dim: int,
    kv_dtype: torch.dtype,
    hint: int | None,
    tile: int,
    verify_kernel: bool,
) -> None:
    monkeypatch.setenv(DISABLE_VERIFY_KERNEL, "" if verify_kernel else "1")
    batch = verify_batch(head_dim, kv_dtype)
    wrapper, mask = paged_wrapper(workspace, batch, graph=True, masked=True), batch.mask()
    plan(wrapper, batch, custom_mask=mask, uniform_q_len=hint)
    assert wrapper._plan_info[CTA_TILE_Q] == tile
    captured = Captured(wrapper, batch.q, batch.cache)
    for _ in range(2):
        batch.q.normal_()
        batch.assert_right(captured.replay(batch.q), mask=mask)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph wrapper"])
def test_flashinfers_verify_kernel_is_reached(workspace: torch.Tensor, release: str, graph: bool) -> None:
    """Where FlashInfer has its SM90 fp8-KV kernel (from 0.7.2.post1), the facade's wrapper dispatches it as its own."""
    prefill: Any = importlib.import_module("flashinfer.prefill")
    if release in ("0.7.1", "0.7.2"):
        assert not hasattr(prefill, "_eagle_verify_fp8kv_sm90_stats")
        return
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the verify kernel is built for SM90")
    batch = verify_batch(256, torch.float8_e4m3fn)
    wrapper, mask = paged_wrapper(workspace, batch, graph=graph, masked=True), batch.mask()
    plan(wrapper, batch, custom_mask=mask, uniform_q_len=DRAFT_TOKENS)
    before = prefill._eagle_verify_fp8kv_sm90_stats()["runs_dispatched"]
    batch.assert_right(run(wrapper, batch), mask=mask)
    assert prefill._eagle_verify_fp8kv_sm90_stats()["runs_dispatched"] == before + 1


def test_ragged(workspace: torch.Tensor) -> None:
    """The ragged wrapper's hint, with as many KV as query rows and a causal mask."""
    q_lens = [DRAFT_TOKENS] * 5
    q = torch.randn(sum(q_lens), HEADS, 128, dtype=torch.bfloat16, device=DEVICE)
    k, v = (torch.randn(sum(q_lens), 1, 128, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    rows = indptr(q_lens).to(DEVICE)
    expected = torch.cat(
        [
            attention(*parts, 128**-0.5, causal_mask(DRAFT_TOKENS, DRAFT_TOKENS))[0]
            for parts in zip(q.split(q_lens), k.split(q_lens), v.split(q_lens), strict=True)
        ]
    )
    for hint, tile in ((None, UNHINTED_TILE), (DRAFT_TOKENS, HINTED_TILE)):
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(
            workspace,
            use_cuda_graph=True,
            qo_indptr_buf=torch.zeros_like(rows),
            kv_indptr_buf=torch.zeros_like(rows),
            backend="fa2",
        )
        wrapper.plan(rows, rows, HEADS, 1, 128, causal=True, q_data_type=torch.bfloat16, uniform_q_len=hint)
        assert wrapper._plan_info[CTA_TILE_Q] == tile
        out = poisoned(*q.shape)
        wrapper.run(q, k, v, out=out)
        assert_close(out, expected, q_lens)

"""Chunked FA2 prefill with a fixed split: bit for bit the unchunked result on ``prefill_chunk_align``'s grid."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat import CompatWarning

from .reference import CTA_TILE_Q, Batch, Cache, indptr, paged_wrapper, plan, poisoned

pytestmark = pytest.mark.gpu

HEAD_DIM, PAGE_SIZE, TOKENS = 128, 16, 768
#: Pages: the whole prompt in one split, and in three.
SPLITS = [64, 16]
GQA = pytest.mark.parametrize(("heads", "kv_heads", "tokens"), [(32, 8, 32), (16, 2, 16)], ids=["group 4", "group 8"])


def prefill(workspace: torch.Tensor, prompt: Batch, chunks: Sequence[int], split: int) -> tuple[torch.Tensor, ...]:
    """Output and log-sum-exp of the prompt, computed in chunks that end at `chunks`, each planned eagerly alone."""
    cache = prompt.cache
    wrapper = paged_wrapper(workspace, prompt)
    out, lse = poisoned(*prompt.q.shape), poisoned(*prompt.q.shape[:2], dtype=torch.float32)
    for start, end in pairwise([0, *chunks]):
        chunk = Batch(cache, [end - start], [end], prompt.heads)
        chunk.kv_indices = prompt.kv_indices[: -(-end // PAGE_SIZE)]
        plan(wrapper, chunk, causal=True, fixed_split_size=split)
        wrapper.run(prompt.q[start:end], cache.pair, out=out[start:end], lse=lse[start:end], return_lse=True)
    return out, lse


def same_bits(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def prompt_of(heads: int, kv_heads: int) -> Batch:
    return Batch(Cache(60, kv_heads, HEAD_DIM, PAGE_SIZE), [TOKENS], [TOKENS], heads)


@pytest.mark.parametrize("split", SPLITS)
@GQA
def test_on_the_grid(workspace: torch.Tensor, heads: int, kv_heads: int, tokens: int, split: int) -> None:
    align = flashinfer.prefill.prefill_chunk_align(heads, kv_heads, HEAD_DIM)
    assert (align, align.query_tile) == (tokens, 128)
    prompt = prompt_of(heads, kv_heads)
    whole = prefill(workspace, prompt, [TOKENS], split)
    prompt.assert_right(whole[0], causal=True)
    inside = torch.randperm(TOKENS // align - 1)[:5].sort().values + 1
    for chunks in (
        range(align, TOKENS + 1, align),
        [align * 5, align * 11, TOKENS],
        [*(inside * align).tolist(), TOKENS],
    ):
        assert same_bits(prefill(workspace, prompt, chunks, split), whole), f"chunks end at {list(chunks)}"


@pytest.mark.parametrize("split", SPLITS)
@GQA
def test_off_the_grid(
    workspace: torch.Tensor, heads: int, kv_heads: int, tokens: int, split: int, release: str
) -> None:
    """Close, but before 0.7.4 not the same bits: a query tile that ends elsewhere takes another KV step, fully masked,
    and the online softmax rescales by almost one there. 0.7.4 rescales by exactly one (prefill.cuh)."""
    prompt = prompt_of(heads, kv_heads)
    whole = prefill(workspace, prompt, [TOKENS], split)
    differing = []
    for first in (tokens * 3 + 1, tokens * 4 + tokens // 2, tokens * 7 - 1):
        chunks = [first, first + 10 * tokens, TOKENS]
        chunked = prefill(workspace, prompt, chunks, split)
        prompt.assert_right(chunked[0], causal=True)
        if not same_bits(chunked, whole):
            differing.append(chunks)
    assert bool(differing) == (release != "0.7.4"), f"chunks that differ: {differing}"


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "kv_dtype", "query_tile", "smaller_tile_up_to"),
    [
        (32, 8, 128, torch.bfloat16, 128, 16),
        (16, 2, 128, torch.bfloat16, 128, 8),
        (8, 2, 256, torch.float8_e4m3fn, 64, 4),
    ],
)
def test_what_the_planner_takes(
    workspace: torch.Tensor,
    heads: int,
    kv_heads: int,
    head_dim: int,
    kv_dtype: torch.dtype,
    query_tile: int,
    smaller_tile_up_to: int,
) -> None:
    """The alignment's own numbers, against the installed planner: one token more, and the tile is the large one."""
    cache = Cache(20, kv_heads, head_dim, PAGE_SIZE, dtype=kv_dtype)
    for tokens, small in ((smaller_tile_up_to, True), (smaller_tile_up_to + 1, False), (200, False)):
        chunk = Batch(cache, [tokens], [300], heads)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            align = flashinfer.prefill.prefill_chunk_align(
                heads, kv_heads, head_dim, qo_indptr_host=chunk.qo_indptr_host
            )
        assert (align.query_tile, align.smaller_tile_up_to) == (query_tile, smaller_tile_up_to)
        assert [warning.category for warning in caught] == [CompatWarning] * small
        wrapper = paged_wrapper(workspace, chunk)
        plan(wrapper, chunk, causal=True, fixed_split_size=64)
        assert (wrapper._plan_info[CTA_TILE_Q] < query_tile) == small
        assert small or wrapper._plan_info[CTA_TILE_Q] == query_tile


def test_a_tiny_chunk_is_warned_of(workspace: torch.Tensor) -> None:
    """Its results are right, but on another tile: nothing is promised about its bits, and the caller is told."""
    prompt = prompt_of(32, 8)
    with pytest.warns(CompatWarning, match="smaller than 128.*not bit-exact"):
        flashinfer.prefill.prefill_chunk_align(32, 8, HEAD_DIM, qo_indptr_host=indptr([8]))
    out, _ = prefill(workspace, prompt, [TOKENS - 8, TOKENS], SPLITS[0])
    prompt.assert_right(out, causal=True)

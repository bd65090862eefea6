"""The finalize in a fixed order: the same bits for a token whatever else is in the batch."""

from __future__ import annotations

import pytest
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat import InvalidArgument, Support

TOP_K, HIDDEN, EXPERTS = 8, 96, 16


def unfinalized(tokens: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    """Rows in a random order, one expert in eight dropped, rows that belong to nobody full of NaN."""
    generator = torch.Generator().manual_seed(seed)
    permuted = torch.randperm(tokens * TOP_K + 5, generator=generator)[: tokens * TOP_K].to(torch.int32)
    rows = torch.full((tokens * TOP_K + 5, HIDDEN), float("nan"), dtype=dtype)
    values = torch.randn(tokens, TOP_K, HIDDEN, generator=generator) * 10.0 ** torch.randint(
        -3, 4, (tokens, TOP_K, 1), generator=generator
    )
    rows[permuted.long()] = values.view(-1, HIDDEN).to(dtype)
    weights = torch.rand(tokens, TOP_K, generator=generator).to(dtype)
    dropped = torch.rand(tokens * TOP_K, generator=generator) < 1 / 8
    rows[permuted[dropped].long()] = float("nan")
    permuted[dropped] = -1
    return [rows, weights, permuted]


def expected(parts: list[torch.Tensor]) -> torch.Tensor:
    """The sum as the large-batch kernel makes it, a token, a hidden entry and an expert at a time."""
    rows, weights, permuted = parts
    tokens = len(weights)
    total = torch.zeros(tokens, HIDDEN)
    for token in range(tokens):
        for k in range(TOP_K):
            row = int(permuted.view(tokens, TOP_K)[token, k])
            if row >= 0:
                total[token] += rows[row].float() * float(weights[token, k])
    return total


def finalize(parts: list[torch.Tensor], **options: object) -> torch.Tensor:
    return flashinfer.fused_moe.batch_invariant_finalize(parts, **options)


@pytest.mark.parametrize("tokens", [0, 1, 3, 64])
def test_sums_in_the_order_of_k(tokens: int) -> None:
    parts = unfinalized(tokens)
    assert torch.equal(finalize(parts, dtype=torch.float32), expected(parts))
    assert torch.equal(finalize(parts), expected(parts).to(torch.bfloat16)), "rounded once"


@pytest.mark.parametrize("size", [1, 2, 42, 43, 63])
def test_a_token_gets_the_same_bits_in_any_batch(size: int) -> None:
    rows, weights, permuted = unfinalized(64)
    whole = finalize([rows, weights, permuted])
    part = finalize([rows, weights[:size], permuted[: size * TOP_K]])
    assert torch.equal(part, whole[:size])


def test_and_wherever_its_experts_rows_lie() -> None:
    rows, weights, permuted = unfinalized(16)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    moved = torch.empty_like(rows)
    moved[order] = rows
    elsewhere = torch.where(permuted < 0, permuted, order[permuted.clamp(min=0).long()].to(torch.int32))
    assert torch.equal(finalize([moved, weights, elsewhere]), finalize([rows, weights, permuted]))


def test_another_order_of_k_would_be_another_sum() -> None:
    """What the small-batch kernel does: partial sums of every other expert. The inputs are such that it shows."""
    rows, weights, permuted = unfinalized(64)
    by_k = permuted.view(64, TOP_K)
    halves = [
        finalize([rows, weights[:, start::2], by_k[:, start::2].contiguous()], dtype=torch.float32) for start in (0, 1)
    ]
    assert not torch.equal(halves[0] + halves[1], finalize([rows, weights, permuted], dtype=torch.float32))


def test_into_a_tensor_of_the_callers() -> None:
    parts = unfinalized(5)
    out = torch.full((5, HIDDEN), float("nan"), dtype=torch.float16)
    assert finalize(parts, out=out) is out
    assert torch.equal(out, expected(parts).to(torch.float16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: parts.__setitem__(2, parts[2][:-1]), "must be"),
        (lambda parts: parts.__setitem__(0, parts[0].view(-1)), "must be"),
    ],
)
def test_shapes_that_do_not_belong_together(change: object, message: str) -> None:
    parts = unfinalized(4)
    change(parts)  # type: ignore[operator]
    with pytest.raises(InvalidArgument, match=message):
        finalize(parts)


@pytest.mark.parametrize(
    ("options"),
    [
        {"out": torch.empty(3, HIDDEN)},
        {"out": torch.empty(4, HIDDEN + 1)},
        {"out": torch.empty(4, HIDDEN), "dtype": torch.bfloat16},
    ],
)
def test_an_out_that_does_not_fit(options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="out is"):
        finalize(unfinalized(4), **options)


def test_says_where_flashinfers_own_is_so_already(release: str) -> None:
    invariant = release in ("0.7.1", "0.7.2")
    outcome = flashinfer.supports("fused_moe.batch_invariant_finalize")
    assert outcome is (Support.NATIVE if invariant else Support.EMULATED)

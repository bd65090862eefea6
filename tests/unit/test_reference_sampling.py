"""The reference sampler against distributions worked out by hand: filters exactly, samples by their frequencies."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the reference is written in PyTorch")

from distances import bound, total_variation  # noqa: E402

from flashinfer_compat.reference import sampling  # noqa: E402

DRAWS = 200_000
#: Two distributions over five tokens; the second has a tie at its second place.
PROBS = [[0.4, 0.1, 0.3, 0.15, 0.05], [0.2, 0.2, 0.4, 0.1, 0.1]]

#: Function, thresholds, and what is left of each distribution, by hand.
CASES: dict[str, tuple[str, dict[str, Any], list[list[float]]]] = {
    "all": ("sampling_from_probs", {}, PROBS),
    "top-k 2": ("top_k_sampling_from_probs", {"top_k": 2}, [[4, 0, 3, 0, 0], [1, 1, 2, 0, 0]]),
    "top-k 0": ("top_k_sampling_from_probs", {"top_k": 0}, [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]]),
    "top-k -1": ("top_k_sampling_from_probs", {"top_k": -1}, PROBS),
    "top-k 9": ("top_k_sampling_from_probs", {"top_k": 9}, PROBS),
    "top-k each": ("top_k_sampling_from_probs", {"top_k": [1, 3]}, [[1, 0, 0, 0, 0], [1, 1, 2, 0, 0]]),
    "top-p 0.5": ("top_p_sampling_from_probs", {"top_p": 0.5}, [[4, 0, 3, 0, 0], [1, 1, 2, 0, 0]]),
    "top-p 0": ("top_p_sampling_from_probs", {"top_p": 0.0}, [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]]),
    "top-p 1": ("top_p_sampling_from_probs", {"top_p": 1.0}, PROBS),
    "top-p each": ("top_p_sampling_from_probs", {"top_p": [0.75, 0.3]}, [[8, 0, 6, 3, 0], [0, 0, 1, 0, 0]]),
    "min-p 0.3": ("min_p_sampling_from_probs", {"min_p": 0.3}, [[8, 0, 6, 3, 0], [1, 1, 2, 0, 0]]),
    "min-p each": ("min_p_sampling_from_probs", {"min_p": [1.0, 0.0]}, [[1, 0, 0, 0, 0], PROBS[1]]),
    # Of what top-k keeps, made to sum to 1: 4/7 is more than 0.5.
    "top-k, then top-p": (
        "top_k_top_p_sampling_from_probs", {"top_k": 2, "top_p": 0.5}, [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]],
    ),
    "joint": (
        "top_k_top_p_sampling_from_probs",
        {"top_k": 2, "top_p": 0.5, "filter_apply_order": "joint"},
        [[4, 0, 3, 0, 0], [1, 1, 2, 0, 0]],
    ),
}  # fmt: skip


def arguments(options: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.tensor(value) if isinstance(value, list) else value for name, value in options.items()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_samples_follow_the_filtered_distribution(case: str, index_dtype: Any) -> None:
    name, options, left = CASES[case]
    indices = torch.arange(2 * DRAWS, dtype=index_dtype) % 2
    samples = getattr(sampling, name)(
        torch.tensor(PROBS), **arguments(options), indices=indices, generator=torch.Generator().manual_seed(7)
    )
    assert samples.dtype == index_dtype
    for row in range(2):
        exact = torch.tensor(left[row], dtype=torch.float64)
        drawn = samples[indices == row]
        assert not bool((exact[drawn.long()] == 0).any())
        assert total_variation(drawn, exact / exact.sum()) < bound(DRAWS, 5)


@pytest.mark.parametrize("case", ["top-k 2", "top-k each", "top-p 0.5", "top-p each"])
def test_renormalised(case: str) -> None:
    name, options, left = CASES[case]
    renorm = getattr(sampling, name.replace("sampling_from", "renorm"))
    exact = torch.tensor(left) / torch.tensor(left).sum(dim=-1, keepdim=True)
    torch.testing.assert_close(renorm(torch.tensor(PROBS), *arguments(options).values()), exact.float())


def test_mask() -> None:
    masked = sampling.top_k_mask_logits(torch.tensor(PROBS), torch.tensor([1, -1]))
    minus = float("-inf")
    assert masked.tolist() == [[torch.tensor(0.4).item(), minus, minus, minus, minus], torch.tensor(PROBS)[1].tolist()]


def test_from_logits() -> None:
    logits = torch.tensor(PROBS[:1]).log() + 3
    indices = torch.zeros(DRAWS, dtype=torch.int32)
    generator = torch.Generator().manual_seed(7)
    exact = torch.tensor(PROBS[0])
    assert total_variation(sampling.sampling_from_logits(logits, indices, generator=generator), exact) < bound(DRAWS, 5)
    samples = sampling.top_k_top_p_sampling_from_logits(logits, 3, 0.9, indices, generator=generator)
    assert total_variation(samples, torch.tensor([8, 0, 6, 3, 0]) / 17) < bound(DRAWS, 5)


@pytest.mark.parametrize(("vocabulary", "kept"), [(65536, 2), (65535, 4)])
def test_top_k_max_bounds_a_tensor_of_a_large_vocabulary(vocabulary: int, kept: int) -> None:
    probs = torch.zeros(1, vocabulary)
    probs[0, :4] = torch.tensor([0.4, 0.3, 0.2, 0.1])
    samples = sampling.top_k_top_p_sampling_from_probs(
        probs, torch.tensor([-1]), 1.0, torch.zeros(200, dtype=torch.int64),
        generator=torch.Generator().manual_seed(1), top_k_max=2,
    )  # fmt: skip
    assert set(samples.tolist()) == set(range(kept))


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (None, [[0.25, 0.75], [0.5, 0.5]]),
        (0.5, [[0.1, 0.9], [0.5, 0.5]]),
        (0.0, [[0.5, 0.5], [0.5, 0.5]]),
        (torch.tensor([0.5, 1.0]), [[0.1, 0.9], [0.5, 0.5]]),
    ],
)
def test_softmax(temperature: Any, expected: list[list[float]]) -> None:
    logits = torch.tensor([[1.0, 3.0], [2.0, 2.0]]).log()
    torch.testing.assert_close(sampling.softmax(logits, temperature), torch.tensor(expected))


def test_rows_without_mass() -> None:
    samples, valid = sampling.sampling_from_probs(torch.tensor([[0.0, 0.0], [0.0, 2.0]]), return_valid=True)
    assert (samples.tolist(), valid.tolist()) == ([0, 1], [False, True])


def test_nan() -> None:
    with pytest.raises(ValueError, match="NaN"):
        sampling.sampling_from_probs(torch.tensor([[float("nan")]]), check_nan=True)


def test_seeds() -> None:
    probs = torch.full((4, 1000), 1e-3)
    seeds, offsets = torch.tensor([3, 3, 4, 5]), torch.tensor([0])
    once = sampling.sampling_from_probs(probs, seed=seeds, offset=offsets)
    assert torch.equal(once, sampling.sampling_from_probs(probs, seed=seeds, offset=offsets))
    other = sampling.sampling_from_probs(probs, seed=torch.tensor([3, 3, 4, 6]), offset=offsets)
    assert (once != other).nonzero().flatten().tolist() == [3]
    assert once[0] != once[1], "one seed at two rows is two streams, as in FlashInfer"
    assert not torch.equal(
        sampling.sampling_from_probs(probs, seed=3, offset=0), sampling.sampling_from_probs(probs, seed=3, offset=4)
    )


class TestChain:
    """Two drafts over two tokens: position by position the target decides."""

    draft_probs = torch.tensor([[[0.5, 0.5], [0.5, 0.5]]])
    draft_token_ids = torch.tensor([[0, 1]])

    def sample(self, target: list[list[float]], rows: int, **options: Any) -> Any:
        return sampling.chain_speculative_sampling(
            self.draft_probs.expand(rows, 2, 2),
            self.draft_token_ids.expand(rows, 2),
            torch.tensor([target]).expand(rows, 3, 2),
            generator=torch.Generator().manual_seed(3),
            **options,
        )

    def test_all_taken(self) -> None:
        tokens, accepted, emitted = self.sample([[0.6, 0.4], [0.1, 0.9], [0.0, 1.0]], rows=4)
        assert tokens.tolist() == [[0, 1, 1]] * 4
        assert accepted.tolist() == emitted.tolist() == [2] * 4

    def test_first_rejected(self) -> None:
        tokens, accepted, emitted = self.sample([[0.0, 1.0], [0.1, 0.9], [0.0, 1.0]], rows=4)
        assert tokens.tolist() == [[1, -1, -1]] * 4
        assert emitted.tolist() == [0] * 4
        assert accepted.tolist() == [1] * 4, "the second draft, by itself, would be taken"

    def test_tokens_follow_the_target(self) -> None:
        target = [[0.2, 0.8], [0.3, 0.7], [0.25, 0.75]]
        tokens, accepted, emitted = self.sample(target, rows=DRAWS)
        # The draft of token 0 is a sample of the draft model's only if it is drawn: here it is given, so the first
        # token is 0 with min(1, q / p) = 0.4, else the residual's, which has all its mass on token 1.
        assert total_variation(tokens[:, 0], torch.tensor([0.4, 0.6])) < bound(DRAWS, 2)
        assert total_variation(emitted, torch.tensor([0.6, 0.0, 0.4])) < bound(DRAWS, 3)
        assert total_variation(accepted, torch.tensor([0.0, 0.6, 0.4])) < bound(DRAWS, 3)
        last = tokens[emitted == 2, 2]
        assert total_variation(last, torch.tensor([0.25, 0.75])) < bound(len(last), 2)

    def test_counters_are_added_to(self) -> None:
        accepted, emitted = torch.tensor([5], dtype=torch.int32), torch.tensor([7], dtype=torch.int32)
        _, *counted = self.sample(
            [[0.6, 0.4], [0.1, 0.9], [0.0, 1.0]], rows=1,
            maybe_output_accepted_token_num=accepted, maybe_output_emitted_draft_token_num=emitted,
        )  # fmt: skip
        assert counted[0] is accepted
        assert (accepted.item(), emitted.item()) == (7, 9)


def test_the_reference_has_the_arguments_of_the_newest_release() -> None:
    """Written out from the contract; tests/contract holds the reference against the facade."""
    numbers = "deterministic generator check_nan seed offset return_valid"
    assert " ".join(inspect.signature(sampling.top_p_sampling_from_probs).parameters) == (
        f"probs top_p indices {numbers}"
    )
    assert " ".join(inspect.signature(sampling.top_k_top_p_sampling_from_probs).parameters) == (
        f"probs top_k top_p indices filter_apply_order {numbers} top_k_max"
    )

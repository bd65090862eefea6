"""What reaches the sampling kernels through the facade: thresholds, indices, seeds and offsets, on each release."""

from __future__ import annotations

import inspect
from typing import Any

import flashinfer as native
import numpy as np
import pytest
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat import CompatError, InvalidArgument, Support, UnsupportedArgument, sampling
from flashinfer_compat.reference import sampling as reference

from .sampling_kernels import Generator, RecordingModule, as_read, kernels

__all__ = ["kernels"]

#: Stated, not asked of the package: releases with what 0.7.4 added (0.7.3 is tested on 0.7.4's code).
NEWEST = ("0.7.3", "0.7.4")
DISTRIBUTIONS, VOCABULARY = 3, 8
#: More output rows than distributions, as many, and fewer.
INDICES = {"more": [2, 0, 1, 1, 2], "as many": [2, 0, 1], "fewer": [2, 0], "none": None}

#: Each function with the thresholds it takes, its kernel, and how many numbers it reserves: (output rows, vocabulary).
FUNCTIONS: dict[str, tuple[tuple[str, ...], str, Any]] = {
    "sampling_from_logits": ((), "sampling_from_logits", lambda rows, vocabulary: rows * vocabulary),
    "sampling_from_probs": ((), "sampling_from_probs", lambda rows, _: rows),
    "top_p_sampling_from_probs": (("top_p",), "top_p_sampling_from_probs", lambda rows, _: 32 * rows),
    "top_k_sampling_from_probs": (("top_k",), "top_k_sampling_from_probs", lambda rows, _: 32 * rows),
    "min_p_sampling_from_probs": (("min_p",), "min_p_sampling_from_probs", lambda rows, _: rows),
    "top_k_top_p_sampling_from_logits": (
        ("top_k", "top_p"), "top_k_top_p_sampling_from_probs", lambda rows, _: 32 * rows,
    ),
    "top_k_top_p_sampling_from_probs": (
        ("top_k", "top_p"), "top_k_top_p_sampling_from_probs", lambda rows, _: 32 * rows,
    ),
}  # fmt: skip
JOINT = {"filter_apply_order": "joint"}


def thresholds(name: str, dtype: torch.dtype | None = None) -> torch.Tensor:
    values = [5, 1, 3] if name == "top_k" else [0.5, 0.125, 0.75]
    return torch.tensor(values, dtype=dtype or (torch.int32 if name == "top_k" else torch.float32))


def numbers(name: str) -> dict[str, Any]:
    return {threshold: 2 if threshold == "top_k" else 0.5 for threshold in FUNCTIONS[name][0]}


def call(name: str, **options: Any) -> Any:
    probs = torch.full((DISTRIBUTIONS, VOCABULARY), 1 / VOCABULARY)
    order = JOINT if name.startswith("top_k_top_p") else {}
    return getattr(sampling, name)(probs, **{**numbers(name), **order, **options})


@pytest.fixture(params=[None, torch.int32, torch.int64], ids=["no indices", "int32", "int64"])
def index_dtype(request: pytest.FixtureRequest) -> torch.dtype | None:
    return request.param


def make_indices(kind: str, dtype: torch.dtype | None) -> torch.Tensor | None:
    return None if dtype is None or INDICES[kind] is None else torch.tensor(INDICES[kind], dtype=dtype)


class TestRandomNumbers:
    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_are_drawn_once_from_the_range_that_the_generator_gives(
        self, kernels: RecordingModule, name: str, index_dtype: torch.dtype | None
    ) -> None:
        indices = make_indices("more", index_dtype)
        rows = DISTRIBUTIONS if indices is None else len(indices)
        generator = Generator(seed=1234, offset=100)
        call(name, indices=indices, generator=generator)
        launch = kernels.only()
        _, kernel, reserved = FUNCTIONS[name]
        assert launch.kernel == kernel
        assert [launch.arguments[key] for key in ("seed_arr", "seed", "offset_arr", "offset")] == [
            None,
            1234,
            None,
            100,
        ]
        assert generator.offset == 100 + -(-reserved(rows, VOCABULARY) // 4) * 4
        assert generator.moves == 1

    def test_of_a_chain(self, kernels: RecordingModule) -> None:
        generator = Generator(seed=1234, offset=100)
        sampling.chain_speculative_sampling(*chain(b=3, n=4), generator=generator)
        assert (kernels.only().arguments["seed"], kernels.only().arguments["offset"]) == (1234, 100)
        assert (generator.offset, generator.moves) == (100 + 3 * (4 + 2) + 2, 1)

    @pytest.mark.parametrize(
        ("seed", "expected"),
        [(7, 7), (-7, -7), ((1 << 64) - 7, -7), (1 << 63, -(1 << 63)), (np.uint64((1 << 64) - 7), -7)],
    )
    def test_of_64_bits(self, kernels: RecordingModule, seed: int, expected: int) -> None:
        call("sampling_from_probs", seed=seed, offset=8)
        call("sampling_from_probs", generator=Generator(seed=int(seed) % (1 << 64)))
        assert [launch.arguments["seed"] for launch in kernels.launches] == [expected, expected]

    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_given_as_numbers_leave_the_generator_alone(self, kernels: RecordingModule, name: str) -> None:
        generator = Generator()
        call(name, seed=11, offset=3, generator=generator)
        arguments = kernels.only().arguments
        assert (arguments["seed_arr"], arguments["seed"], arguments["offset"]) == (None, 11, 3)
        assert generator.moves == 0

    @pytest.mark.parametrize("dtype", [torch.int64, torch.uint64])
    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_given_as_one_for_all_rows(self, kernels: RecordingModule, name: str, dtype: torch.dtype) -> None:
        seed, offset = torch.tensor([11], dtype=dtype), torch.tensor([4], dtype=dtype)
        call(name, seed=seed, offset=offset)
        arguments = kernels.only().arguments
        assert arguments["seed_arr"] is seed
        assert arguments["offset_arr"] is offset

    @pytest.mark.parametrize(("seeds", "offsets"), [(5, 5), (5, 1), (1, 5)])
    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_given_for_each_row(
        self, kernels: RecordingModule, release: str, name: str, seeds: int, offsets: int
    ) -> None:
        seed, offset = torch.arange(seeds), torch.arange(offsets) * 4
        options = {"indices": torch.tensor(INDICES["more"]), "seed": seed, "offset": offset}
        if release == "0.7.1":
            with pytest.raises(
                UnsupportedArgument,
                match=rf"{name}\(seed per row, offset per row\): FlashInfer 0.7.2 and later have it; installed",
            ):
                call(name, **options)
            assert kernels.launches == []
            return
        call(name, **options)
        assert kernels.only().arguments["seed_arr"] is seed
        assert kernels.only().arguments["offset_arr"] is offset

    def test_for_each_row_of_a_chain(self, kernels: RecordingModule, release: str) -> None:
        options = {"seed": torch.arange(3), "offset": torch.arange(3)}
        if release == "0.7.1":
            with pytest.raises(UnsupportedArgument, match="seed per row.*0.7.2"):
                sampling.chain_speculative_sampling(*chain(b=3, n=2), **options)
            return
        sampling.chain_speculative_sampling(*chain(b=3, n=2), **options)
        assert kernels.only().arguments["seed_arr"] is options["seed"]

    def test_for_each_row_in_the_documented_way(self, kernels: RecordingModule, release: str) -> None:
        seed, offset = torch.tensor([7, 8, 9]), torch.tensor([0])
        samples, valid = sampling.sample_with_row_seeds(
            lambda seed, offset: call("sampling_from_probs", seed=seed, offset=offset, return_valid=True), seed, offset
        )
        assert samples.tolist() == [0, 1, 2]
        assert valid.tolist() == [True] * 3
        used = [launch.arguments["seed_arr"].tolist() for launch in kernels.launches]
        assert used == ([[7], [8], [9]] if release == "0.7.1" else [[7, 8, 9]])

    @pytest.mark.parametrize("name", FUNCTIONS)
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"seed": 1}, "seed without the other"),
            ({"offset": 1}, "offset without the other"),
            ({"seed": 1, "offset": torch.tensor([1])}, "both be tensors or both be numbers"),
            ({"seed": 1.5, "offset": 1}, "seed is 1.5; it must be an integer"),
            ({"seed": 1 << 64, "offset": 1}, "seed is 18446744073709551616; it must lie in"),
            ({"seed": 1, "offset": -4}, "offset is -4; it must lie in"),
            ({"seed": torch.zeros(2).long(), "offset": torch.zeros(1).long()}, r"seed has shape \(2,\)"),
            ({"seed": torch.zeros(1).long(), "offset": torch.zeros(1, 1).long()}, r"offset has shape \(1, 1\)"),
            ({"seed": torch.zeros(1).int(), "offset": torch.zeros(1).long()}, "seed is torch.int32"),
            ({"seed": torch.zeros(1).long().expand(3), "offset": torch.zeros(3).long()}, "seed must be contiguous"),
            ({"seed": torch.zeros(1).long().to("meta"), "offset": torch.zeros(1).long()}, "seed is on meta"),
            (
                {"generator": type("OnCuda", (Generator,), {"device": torch.device("cuda", 0)})()},
                "generator is on cuda",
            ),
        ],
        ids=lambda value: None if isinstance(value, str) else " ".join(value),
    )
    def test_refused(self, kernels: RecordingModule, name: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            call(name, **options)
        assert kernels.launches == []


class TestThresholds:
    @pytest.mark.parametrize("kind", INDICES)
    @pytest.mark.parametrize("strided", [False, True], ids=["dense", "strided"])
    @pytest.mark.parametrize(
        ("name", "threshold", "dtype"),
        [
            (name, threshold, dtype)
            for name, (takes, _, _) in FUNCTIONS.items()
            for threshold in takes
            for dtype in ([torch.int32, torch.int64] if threshold == "top_k" else [torch.float32, torch.float64])
        ],
    )
    def test_of_each_distribution_are_read_by_its_output_rows(
        self,
        kernels: RecordingModule,
        release: str,
        name: str,
        threshold: str,
        dtype: torch.dtype,
        strided: bool,
        kind: str,
        index_dtype: torch.dtype | None,
    ) -> None:
        values, indices = thresholds(threshold, dtype), make_indices(kind, index_dtype)
        expected = [values.tolist()[row] for row in INDICES[kind] or range(3)] if index_dtype else values.tolist()
        if strided:
            values = torch.stack([values, torch.zeros_like(values)], dim=1)[:, 0]
            indices = None if indices is None else torch.stack([indices, torch.zeros_like(indices)], dim=1)[:, 0]
        samples = call(name, **{threshold: values, "indices": indices, "seed": 1, "offset": 0})
        assert kernels.only().thresholds(threshold, release) == expected
        assert samples.dtype == (torch.int32 if indices is None else indices.dtype)
        assert samples.tolist() == list(range(len(expected)))

    @pytest.mark.parametrize("name", [name for name, (takes, _, _) in FUNCTIONS.items() if takes])
    def test_as_numbers(self, kernels: RecordingModule, name: str, index_dtype: torch.dtype | None) -> None:
        indices = make_indices("more", index_dtype)
        samples = call(name, indices=indices, seed=1, offset=0)
        arguments = kernels.only().arguments
        for threshold, value in numbers(name).items():
            assert (arguments[f"{threshold}_arr"], arguments[threshold]) == (None, value)
        assert samples.dtype == (index_dtype or torch.int32)
        assert indices is None or arguments["indices"] is indices

    @pytest.mark.parametrize("return_valid", [False, True])
    @pytest.mark.parametrize("name", [name for name in FUNCTIONS if "logits" not in name])
    def test_return_valid(self, kernels: RecordingModule, name: str, return_valid: bool) -> None:
        options = {threshold: thresholds(threshold) for threshold in FUNCTIONS[name][0]}
        indices = torch.tensor(INDICES["more"])
        result = call(name, **options, indices=indices, return_valid=return_valid, seed=1, offset=0)
        samples, valid = result if return_valid else (result, None)
        assert (samples.dtype, samples.tolist()) == (torch.int64, [0, 1, 2, 3, 4])
        assert valid is None or valid.tolist() == [True] * 5

    @pytest.mark.parametrize("probs_dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_distributions_of_each_dtype(self, kernels: RecordingModule, probs_dtype: torch.dtype) -> None:
        sampling.sampling_from_probs(torch.full((2, 4), 0.25, dtype=probs_dtype), seed=1, offset=0)
        assert kernels.only().arguments["probs"].dtype == torch.float32
        assert torch.equal(kernels.only().arguments["probs"], torch.full((2, 4), 0.25))

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("sampling_from_probs", {"indices": torch.zeros(2)}, "indices have shape .2,. and torch.float32"),
            ("sampling_from_logits", {"indices": torch.zeros(2, 1).int()}, r"indices have shape \(2, 1\)"),
            ("sampling_from_probs", {"indices": torch.zeros(2).short()}, "int32 or int64"),
            ("sampling_from_probs", {"indices": torch.zeros(2).int().to("meta")}, "indices are on meta"),
            ("top_k_sampling_from_probs", {"top_k": torch.ones(5).int()}, r"top_k has shape \(5,\); it must be \(3,\)"),
            ("top_k_sampling_from_probs", {"top_k": torch.ones(3)}, "top_k is torch.float32; it must be an integer"),
            ("top_k_sampling_from_probs", {"top_k": torch.tensor(1)}, r"top_k has shape \(\)"),
            ("top_k_sampling_from_probs", {"top_k": 1 << 32}, "the kernels take 32 bits"),
            ("top_k_sampling_from_probs", {"top_k": 1.5}, "top_k is 1.5; it must be an int"),
            ("top_p_sampling_from_probs", {"top_p": torch.ones(3, 1)}, r"top_p has shape \(3, 1\)"),
            ("top_p_sampling_from_probs", {"top_p": torch.ones(3).to("meta")}, "top_p is on meta"),
            ("top_p_sampling_from_probs", {"top_p": 1.5}, "top_p is 1.5; it must lie in"),
            ("top_p_sampling_from_probs", {"top_p": float("nan")}, "top_p is nan"),
            ("top_p_sampling_from_probs", {"top_p": "0.9"}, "top_p is '0.9'; it must be a number"),
            ("min_p_sampling_from_probs", {"min_p": -0.1}, "min_p is -0.1; it must lie in"),
            ("min_p_sampling_from_probs", {"min_p": torch.ones(2)}, r"min_p has shape \(2,\)"),
            ("top_k_top_p_sampling_from_logits", {"top_k": torch.ones(2).int()}, r"top_k has shape \(2,\)"),
            ("top_k_top_p_sampling_from_probs", {"top_p": torch.ones(2)}, r"top_p has shape \(2,\)"),
        ],
    )  # fmt: skip
    def test_refused(self, kernels: RecordingModule, name: str, options: dict[str, Any], message: str) -> None:
        generator = Generator()
        with pytest.raises(CompatError, match=message) as caught:
            call(name, **options, generator=generator)
        assert isinstance(caught.value, (ValueError, TypeError))
        assert kernels.launches == []
        assert generator.moves == 0

    @pytest.mark.parametrize(
        ("probs", "message"),
        [
            (torch.zeros(4), "The distributions have shape"),
            (torch.zeros(2, 4).int(), "The distributions have shape"),
            (torch.zeros(1, 2, 4), "The distributions have shape"),
            (torch.zeros(1, 1).expand(1 << 16, 1 << 16), "count entries in 32 bits"),
        ],
    )
    def test_distributions_refused(self, kernels: RecordingModule, probs: torch.Tensor, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            sampling.sampling_from_probs(probs, generator=Generator())
        assert kernels.launches == []

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("top_p_renorm_probs", {"top_p": torch.ones(2)}),
            ("top_k_renorm_probs", {"top_k": torch.ones(2).int()}),
            ("top_k_mask_logits", {"top_k": torch.ones(2).int()}),
        ],
    )
    def test_of_filters_refused(self, kernels: RecordingModule, name: str, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgument, match=r"has shape \(2,\); it must be \(3,\)"):
            getattr(sampling, name)(torch.ones(3, 8), **options)
        assert kernels.launches == []

    def test_of_top_p_renorm_are_dense(self, kernels: RecordingModule) -> None:
        sampling.top_p_renorm_probs(torch.ones(3, 8), torch.tensor([0.5, 9, 0.25, 9, 0.75, 9])[::2])
        assert as_read(kernels.only().arguments["top_p_arr"], torch.float32, 3) == [0.5, 0.25, 0.75]


class TestWithoutTheFacade:
    """The faults themselves, in FlashInfer's own calls: the seam above sees them."""

    def test_offset_behind_the_range(self, kernels: RecordingModule, release: str) -> None:
        generator = Generator(offset=100)
        native.sampling.sampling_from_probs(torch.ones(3, 8), generator=generator)
        assert kernels.only().arguments["offset"] == (100 if release in NEWEST else 104)
        assert generator.offset == 104

    @pytest.mark.parametrize("name", ["top_k_sampling_from_probs", "min_p_sampling_from_probs"])
    def test_thresholds_by_output_row(self, kernels: RecordingModule, release: str, name: str) -> None:
        threshold = FUNCTIONS[name][0][0]
        indices = torch.tensor(INDICES["more"], dtype=torch.int32)
        getattr(native.sampling, name)(torch.ones(3, 8), thresholds(threshold), indices, seed=1, offset=0)
        if release == "0.7.1":
            with pytest.raises(AssertionError, match="reads past the end"):
                kernels.only().thresholds(threshold, release)
        else:
            expected = [thresholds(threshold).tolist()[row] for row in INDICES["more"]]
            assert kernels.only().thresholds(threshold, release) == expected

    def test_int32_thresholds_with_int64_indices(self, kernels: RecordingModule, release: str) -> None:
        indices = torch.tensor(INDICES["as many"])
        native.sampling.top_k_sampling_from_probs(torch.ones(3, 8), thresholds("top_k"), indices, seed=1, offset=0)
        if release in NEWEST:
            assert kernels.only().thresholds("top_k", release) == [3, 5, 1]
        else:
            with pytest.raises(AssertionError, match="reads past the end"):
                kernels.only().thresholds("top_k", release)

    def test_seed_that_comes_alone(self, kernels: RecordingModule) -> None:
        native.sampling.sampling_from_probs(torch.ones(3, 8), generator=Generator(seed=5), seed=11)
        assert kernels.only().arguments["seed"] == 5


def chain(b: int, n: int, vocabulary: int = 8) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.ones(b, n, vocabulary), torch.zeros(b, n, dtype=torch.int32), torch.ones(b, n + 1, vocabulary)


class TestChain:
    def test_counts_into_the_buffers_that_are_given(self, kernels: RecordingModule) -> None:
        accepted, emitted = torch.zeros(3, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
        _, *counters = sampling.chain_speculative_sampling(*chain(3, 2), accepted, emitted, seed=1, offset=0)
        for name, buffer, counter in zip(("accepted", "emitted"), (accepted, emitted), counters, strict=True):
            assert kernels.only().arguments[name] is buffer
            assert counter is buffer

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((torch.ones(3, 2), *chain(3, 2)[1:]), "draft_probs have shape"),
            ((chain(3, 2)[0], torch.zeros(3, 1).int(), chain(3, 2)[2]), r"draft_token_ids has shape \(3, 1\)"),
            ((*chain(3, 2)[:2], chain(3, 1)[2]), r"target_probs has shape \(3, 2, 8\); it must be \(3, 3, 8\)"),
            ((*chain(3, 2), torch.zeros(2).int()), r"accepted_token_num has shape \(2,\)"),
            ((*chain(3, 2), torch.zeros(3).long()), "accepted_token_num must be contiguous and of int32"),
            ((*chain(3, 2), None, torch.zeros(6).int()[::2]), "emitted_draft_token_num must be contiguous"),
            ((*chain(3, 2), torch.zeros(3).int().to("meta")), "accepted_token_num is on meta"),
        ],
    )
    def test_refused(self, kernels: RecordingModule, arguments: tuple[Any, ...], message: str) -> None:
        generator = Generator()
        with pytest.raises(InvalidArgument, match=message):
            sampling.chain_speculative_sampling(*arguments, generator=generator)
        assert kernels.launches == []
        assert generator.moves == 0

    def test_accepted_count_is_reported(self, release: str) -> None:
        exact = release == "0.7.4"
        assert flashinfer.supports("sampling.exact_accepted_count") is (
            Support.NATIVE if exact else Support.UNAVAILABLE
        )
        assert (
            "the first rejected draft is drawn again" in flashinfer.explain("sampling.exact_accepted_count")
        ) is not exact


class TestTopKFirst:
    """The route of 0.7.4: k entries selected, masked past each row's own k, top-p sampled, mapped back."""

    VOCABULARY = 65536

    @pytest.fixture(autouse=True)
    def before_it_is_native(self, release: str, monkeypatch: pytest.MonkeyPatch) -> None:
        if release in NEWEST:
            pytest.skip("native there, where its scratch needs a CUDA device")
        # Stands for the query that no CPU can answer; the radix backend is the same everywhere.
        monkeypatch.setattr(native.topk, "get_compute_capability", lambda device: (9, 0))
        monkeypatch.setenv("FLASHINFER_TOPK_ALGO", "multi_cta")

    def values(self) -> torch.Tensor:
        """Three rows with their largest entries at 10·row + 7, + 6, …: 8, 4, 2, 1 and zeros."""
        values = torch.zeros(3, self.VOCABULARY)
        for row in range(3):
            for place, value in enumerate((8.0, 4.0, 2.0, 1.0)):
                values[row, 10 * row + 7 - place] = value
        return values

    @pytest.mark.parametrize("kind", ["none", "more"])
    @pytest.mark.parametrize("bound", [4, None])
    def test_of_probs(self, kernels: RecordingModule, kind: str, bound: int | None) -> None:
        indices = make_indices(kind, torch.int64)
        top_k = 4 if bound is None else torch.tensor([2, 0, -1], dtype=torch.int32)
        result = sampling.top_k_top_p_sampling_from_probs(
            self.values(), top_k, 0.5, indices, seed=1, offset=0, top_k_max=bound, return_valid=True
        )
        select, sample = kernels.launches
        assert (select.kernel, select.arguments["k"], select.arguments["sorted"]) == ("radix_topk", 4, True)
        assert sample.kernel == "top_p_sampling_from_probs"
        whole = [8 / 15, 4 / 15, 2 / 15, 1 / 15]
        rows = [whole] * 3 if bound is None else [[8 / 12, 4 / 12, 0, 0], [1, 0, 0, 0], whole]
        assert torch.allclose(sample.arguments["probs"], torch.tensor(rows))
        # The fake samples position i for output row i: entry i of its distribution.
        tokens = [7, 16, 25] if indices is None else [27, 6, 15, 14, 27]
        samples, valid = result
        assert samples.tolist() == tokens
        assert samples.dtype == (torch.int32 if indices is None else torch.int64)
        assert valid.all()

    def test_of_logits(self, kernels: RecordingModule) -> None:
        sampling.top_k_top_p_sampling_from_logits(
            self.values(), torch.tensor([2, 9, 1]), torch.tensor([0.5, 0.6, 0.7]), seed=1, offset=0, top_k_max=4
        )
        _, sample = kernels.launches
        logits = torch.tensor([[8.0, 4, 2, 1]]).repeat(3, 1)
        logits[0, 2:], logits[2, 1:] = float("-inf"), float("-inf")
        assert torch.equal(sample.arguments["probs"], torch.softmax(logits, dim=-1))
        assert torch.equal(sample.arguments["top_p_arr"], torch.tensor([0.5, 0.6, 0.7]))

    @pytest.mark.parametrize(
        ("vocabulary", "top_k", "top_k_max"),
        [
            (65535, 4, None),
            (65536, 257, None),
            (65536, 0, None),
            (65536, -1, None),
            (65536, torch.tensor([1, 2]), None),
            (65536, torch.tensor([1, 2]), 257),
            (65535, torch.tensor([1, 2]), 4),
        ],
    )
    def test_whole_vocabulary(
        self, kernels: RecordingModule, vocabulary: int, top_k: Any, top_k_max: int | None
    ) -> None:
        probs = torch.full((2, vocabulary), 0.5)
        sampling.top_k_top_p_sampling_from_probs(probs, top_k, 0.5, seed=1, offset=4, top_k_max=top_k_max)
        sampling.top_k_top_p_sampling_from_logits(probs, top_k, 0.5, seed=1, offset=4, top_k_max=top_k_max)
        renorm, of_probs, mask, of_logits = kernels.launches
        assert (renorm.kernel, mask.kernel) == ("top_k_renorm_probs", "top_k_mask_logits")
        assert torch.equal(of_probs.arguments["probs"], renorm.arguments["result"])
        assert torch.equal(of_logits.arguments["probs"], torch.softmax(mask.arguments["result"], dim=-1))
        assert (of_logits.arguments["seed"], of_logits.arguments["offset"]) == (1, 4)

    def test_generator_moves_once(self, kernels: RecordingModule) -> None:
        generator = Generator(offset=0)
        sampling.top_k_top_p_sampling_from_logits(self.values(), 4, 0.5, generator=generator)
        assert (generator.offset, generator.moves) == (3 * 32, 1)
        assert kernels.launches[-1].arguments["offset"] == 0

    def test_scratch_is_not_the_process_wide_one(self, kernels: RecordingModule) -> None:
        shared = dict(native.utils._cache_buf)
        sampling.top_k_mask_logits(torch.ones(2, 8), 4)
        sampling.top_k_renorm_probs(torch.ones(2, 8), 4)
        flashinfer.topk.top_k(torch.ones(2, 8), 4, deterministic=True)
        states = [launch.arguments["row_states"] for launch in kernels.launches]
        assert [(len(state), int(state.sum())) for state in states] == [(1 << 20, 0)] * 3
        assert native.utils._cache_buf == shared


def test_top_k_max_must_be_known_on_the_host(kernels: RecordingModule) -> None:
    with pytest.raises(UnsupportedArgument, match="top_k_max is tensor"):
        sampling.top_k_top_p_sampling_from_probs(
            torch.ones(1, 8), torch.tensor([1]), 0.5, generator=Generator(), top_k_max=torch.tensor(4)
        )
    assert kernels.launches == []


def test_varlen_top_k_is_left_as_it_is(release: str) -> None:
    assert flashinfer.top_k_varlen is native.top_k_varlen
    outcome = flashinfer.supports("top_k_varlen(logits on several streams)")
    assert outcome is (Support.NATIVE if release == "0.7.4" else Support.UNAVAILABLE)


def test_names_elsewhere_are_the_same_functions() -> None:
    assert flashinfer.top_k_sampling_from_probs is sampling.top_k_sampling_from_probs
    assert sampling.top_k_renorm_prob is sampling.top_k_renorm_probs
    assert flashinfer.top_k is flashinfer.topk.top_k


@pytest.mark.parametrize("name", [*FUNCTIONS, "chain_speculative_sampling", "softmax", "top_k_mask_logits"])
def test_signatures_are_those_of_the_newest_release(name: str) -> None:
    ours = dict(inspect.signature(getattr(sampling, name)).parameters)
    theirs = dict(inspect.signature(getattr(native.sampling, name)).parameters)
    if name.startswith("top_k_top_p"):
        bound = ours.pop("top_k_max")
        theirs.pop("top_k_max", None)
        assert (bound.kind, bound.default) == (bound.KEYWORD_ONLY, None)
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


@pytest.mark.parametrize("name", [name for name in vars(reference) if name in dir(native.sampling)])
def test_the_reference_takes_the_same_arguments(name: str) -> None:
    function = getattr(reference, name)
    if inspect.isfunction(function) and function.__module__ == reference.__name__:
        ours = inspect.signature(getattr(sampling, name)).parameters
        assert {key: value.default for key, value in inspect.signature(function).parameters.items()} == {
            key: value.default for key, value in ours.items()
        }


def test_softmax_with_temperatures_is_not_launched_ahead_of_them(release: str) -> None:
    """The rule alone: FlashInfer's softmax asks for a CUDA tensor first (tests/gpu runs it)."""
    from flashinfer_compat.bridges import thresholds as bridge

    temperatures = torch.ones(2)
    for enable_pdl in (None, True, False):
        assert bridge.no_pdl_with_temperatures(temperatures, enable_pdl) is False
        assert bridge.no_pdl_with_temperatures(0.5, enable_pdl) is enable_pdl
    used = bridge.no_pdl_with_temperatures in sampling.softmax.__globals__.values()
    assert used is (release == "0.7.1")


def test_include_dirs() -> None:
    (directory,) = flashinfer.include_dirs()
    assert (directory / "flashinfer_compat" / "sampling.cuh").is_file()

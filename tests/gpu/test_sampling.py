"""Sampling on a device: one stream on all releases, the exact distributions, thresholds by row, capture and replay."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import flashinfer as native
import pytest
import torch
from distances import bound, total_variation
from nvcc import compile_shared

import flashinfer_compat as flashinfer
from flashinfer_compat import UnsupportedArgument, sampling
from flashinfer_compat.bridges import rng
from flashinfer_compat.reference import sampling as reference

from .reference import DEVICE

pytestmark = pytest.mark.gpu

#: Below 8192 FlashInfer 0.7.4 leaves a row to one CTA on SM90 too: all releases sum in the same order there.
SMALL, LARGE = 4000, 128256
#: Function, its thresholds as numbers, and the numbers that it reserves for each output row (None: one per logit).
FUNCTIONS: dict[str, tuple[str, dict[str, Any], int | None]] = {
    "logits": ("sampling_from_logits", {}, None),
    "probs": ("sampling_from_probs", {}, 1),
    "top-p": ("top_p_sampling_from_probs", {"top_p": 0.8}, 32),
    "top-k": ("top_k_sampling_from_probs", {"top_k": 40}, 32),
    "min-p": ("min_p_sampling_from_probs", {"min_p": 0.05}, 1),
    "top-k, top-p of logits": ("top_k_top_p_sampling_from_logits", {"top_k": 40, "top_p": 0.8}, 32),
    "top-k, top-p of probs": ("top_k_top_p_sampling_from_probs", {"top_k": 40, "top_p": 0.8}, 32),
    "joint of logits": (
        "top_k_top_p_sampling_from_logits", {"top_k": 40, "top_p": 0.8, "filter_apply_order": "joint"}, 32,
    ),
    "joint of probs": (
        "top_k_top_p_sampling_from_probs", {"top_k": 40, "top_p": 0.8, "filter_apply_order": "joint"}, 32,
    ),
}  # fmt: skip
#: Their sums decide alone, and those are summed alike in all releases, whatever the vocabulary.
ALIKE_AT_ANY_SIZE = ("logits", "probs", "min-p")
ROWS = 64


def generator(seed: int = 20260, offset: int = 1000) -> torch.Generator:
    made = torch.Generator(DEVICE).manual_seed(seed)
    made.set_offset(offset)
    return made


def logits(rows: int, vocabulary: int) -> torch.Tensor:
    """Gaussian logits, made on the host: the same on each release and each torch."""
    host = torch.Generator().manual_seed(rows + vocabulary)
    return (3 * torch.randn(rows, vocabulary, generator=host)).to(DEVICE)


def call(case: str, rows: int, vocabulary: int, module: Any = sampling, **options: Any) -> Any:
    name, thresholds, _ = FUNCTIONS[case]
    values = logits(rows, vocabulary)
    if not name.endswith("logits"):
        values = torch.softmax(values, dim=-1)
    return getattr(module, name)(values, **{**thresholds, **options})


class TestStream:
    @pytest.mark.parametrize("indices", [False, True], ids=["rows", "indices"])
    @pytest.mark.parametrize(
        ("case", "vocabulary"),
        [(case, vocabulary) for case in FUNCTIONS for vocabulary in (SMALL, 4093)]
        + [(case, LARGE) for case in ALIKE_AT_ANY_SIZE],
    )  # fmt: skip
    def test_same_tokens_and_state(
        self, sampled_ids: dict[str, list[int]], case: str, vocabulary: int, indices: bool
    ) -> None:
        drawn = generator()
        rows = ROWS + 10 if indices else ROWS
        options = {"indices": torch.arange(rows, device=DEVICE) % ROWS} if indices else {}
        samples = call(case, ROWS, vocabulary, generator=drawn, **options)
        per_row = FUNCTIONS[case][2]
        assert drawn.get_offset() == 1000 + -(-rows * (per_row or vocabulary) // 4) * 4
        assert drawn.initial_seed() == 20260
        assert samples.dtype == (torch.int64 if indices else torch.int32)
        # The range that the generator gave, and FlashInfer's own call with it.
        assert torch.equal(samples, call(case, ROWS, vocabulary, seed=20260, offset=1000, **options))
        assert torch.equal(samples, call(case, ROWS, vocabulary, native.sampling, seed=20260, offset=1000, **options))
        sampled_ids[f"{case}, {vocabulary}, {'indices' if indices else 'rows'}"] = [
            *samples.tolist(),
            drawn.get_offset(),
        ]

    @pytest.mark.parametrize("case", FUNCTIONS)
    def test_default_generator(self, case: str) -> None:
        torch.cuda.manual_seed(11)
        samples = call(case, ROWS, SMALL)
        moved = torch.cuda.default_generators[DEVICE.index].get_offset()
        assert torch.equal(samples, call(case, ROWS, SMALL, seed=11, offset=0))
        assert moved == -(-ROWS * (FUNCTIONS[case][2] or SMALL) // 4) * 4
        assert not torch.equal(samples, call(case, ROWS, SMALL)), "the next call has the next range"

    @pytest.mark.parametrize("seed", [(1 << 63) + 5, (1 << 64) - 1])
    def test_seeds_of_64_bits(self, seed: int) -> None:
        drawn = call("probs", ROWS, SMALL, generator=generator(seed, 0))
        assert torch.equal(drawn, call("probs", ROWS, SMALL, seed=seed, offset=0))
        assert torch.equal(drawn, call("probs", ROWS, SMALL, seed=seed - (1 << 64), offset=0))

    @pytest.mark.parametrize("bounded", [False, True], ids=["one k", "top_k_max"])
    @pytest.mark.parametrize("kind", ["logits", "probs"])
    def test_selected_first(self, sampled_ids: dict[str, list[int]], kind: str, bounded: bool) -> None:
        """A large vocabulary and a small k: k entries are selected, and so few are summed alike in all releases."""
        k = torch.arange(ROWS, device=DEVICE, dtype=torch.int32) % 60 - 1 if bounded else 40
        indices = torch.arange(2 * ROWS, device=DEVICE) % ROWS
        samples = call(
            f"top-k, top-p of {kind}", ROWS, LARGE, top_k=k, top_k_max=50 if bounded else None, indices=indices,
            generator=generator(),
        )  # fmt: skip
        sampled_ids[f"selected first, {kind}, {bounded}"] = samples.tolist()
        ranks = (logits(ROWS, LARGE) > logits(ROWS, LARGE).gather(1, samples.view(2, ROWS).T)[..., 0:1]).sum(dim=-1)
        kept = torch.where(k < 0, 50, k.clamp(1, 50)) if bounded else torch.full((ROWS,), 40, device=DEVICE)
        assert bool((ranks < kept).all())

    def test_chain(self, sampled_ids: dict[str, list[int]]) -> None:
        probs = torch.softmax(logits(ROWS * 9, 1000), dim=-1).view(ROWS, 9, 1000)
        draft, target = probs[:, :4].contiguous(), probs[:, 4:].contiguous()
        tokens = torch.multinomial(draft.view(-1, 1000).cpu(), 1, generator=torch.Generator().manual_seed(1))
        drawn = generator()
        ids, accepted, emitted = sampling.chain_speculative_sampling(
            draft, tokens.view(ROWS, 4).int().to(DEVICE), target, generator=drawn
        )
        assert drawn.get_offset() == 1000 + ROWS * 6
        sampled_ids["chain"] = [*ids.flatten().tolist(), *emitted.tolist()]
        assert bool((accepted >= emitted).all())
        assert bool((accepted <= 4).all())


class TestDistribution:
    """At least a million draws of each function, against the distribution worked out in plain PyTorch."""

    DRAWS, DISTRIBUTIONS, SUPPORT = 1 << 20, 2, 64

    def probs(self, vocabulary: int) -> torch.Tensor:
        """Two distributions of 64 tokens each, spread over the vocabulary."""
        host = torch.Generator().manual_seed(vocabulary)
        probs = torch.zeros(self.DISTRIBUTIONS, vocabulary)
        for row in range(self.DISTRIBUTIONS):
            places = torch.randperm(vocabulary, generator=host)[: self.SUPPORT]
            probs[row, places] = torch.softmax(2 * torch.randn(self.SUPPORT, generator=host), dim=0)
        return probs.to(DEVICE)

    @pytest.mark.parametrize("vocabulary", [1000, 16384, 70000])
    @pytest.mark.parametrize("tensors", [False, True], ids=["numbers", "tensors"])
    @pytest.mark.parametrize("case", FUNCTIONS)
    def test_total_variation(self, case: str, tensors: bool, vocabulary: int) -> None:
        name, options, _ = FUNCTIONS[case]
        probs = self.probs(vocabulary)
        values = probs.log() if name.endswith("logits") else probs
        if tensors:
            each = {"top_k": [3, 20], "top_p": [0.5, 0.9], "min_p": [0.3, 0.01]}
            options = {key: torch.tensor(each[key], device=DEVICE) if key in each else options[key] for key in options}
        exact = exact_distribution(case, probs, options)
        # A batch at a time: the kernel of sampling_from_logits numbers its noise in 32 bits (sampling.cuh).
        counts, batch = torch.zeros(self.DISTRIBUTIONS, vocabulary, device=DEVICE), 1 << 15
        indices = torch.arange(batch, device=DEVICE) % self.DISTRIBUTIONS
        drawn = generator()
        for _ in range(self.DRAWS // batch):
            samples = getattr(sampling, name)(values, **options, indices=indices, generator=drawn)
            counts.view(-1).index_add_(0, indices * vocabulary + samples, torch.ones(batch, device=DEVICE))
        assert not bool((counts[exact == 0] > 0).any())
        draws = self.DRAWS // self.DISTRIBUTIONS
        distance = (counts / draws - exact).abs().sum(dim=-1) / 2
        assert float(distance.max()) < bound(draws, self.SUPPORT)


def exact_distribution(case: str, probs: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    kept = probs
    if "joint" in case:
        left = reference.top_k_renorm_probs(probs, options["top_k"]) > 0
        kept = probs * left * (reference.top_p_renorm_probs(probs, options["top_p"]) > 0)
    else:
        if "top_k" in options:
            kept = reference.top_k_renorm_probs(kept, options["top_k"])
        if "top_p" in options:
            kept = reference.top_p_renorm_probs(kept, options["top_p"])
        if "min_p" in options:
            limit = torch.as_tensor(options["min_p"], device=DEVICE).view(-1, 1) * probs.amax(dim=-1, keepdim=True)
            kept = torch.where(probs >= limit, probs, 0)
    return kept / kept.sum(dim=-1, keepdim=True)


class TestThresholds:
    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
    @pytest.mark.parametrize("name", ["top_k_sampling_from_probs", "top_k_top_p_sampling_from_probs"])
    def test_k_of_1_is_the_largest_entry(self, name: str, dtype: torch.dtype) -> None:
        """Forty distributions, every other one with k = 1; 400 output rows in another order."""
        probs = torch.softmax(logits(40, 1000), dim=-1)
        top_k = torch.tensor([1, 50] * 20, device=DEVICE, dtype=torch.int32)
        indices = torch.randperm(400, generator=torch.Generator().manual_seed(3)).to(DEVICE, dtype) % 40
        options = {"top_p": 1.0, "filter_apply_order": "joint"} if "top_p" in name else {}
        samples = getattr(sampling, name)(probs, top_k, indices=indices, generator=generator(), **options)
        greedy = indices % 2 == 0
        assert samples.dtype == dtype
        assert torch.equal(samples[greedy].long(), probs.argmax(dim=-1)[indices[greedy].long()])
        assert not torch.equal(samples[~greedy].long(), probs.argmax(dim=-1)[indices[~greedy].long()])

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
    def test_min_p_of_1_is_the_largest_entry(self, dtype: torch.dtype) -> None:
        probs = torch.softmax(logits(40, 1000), dim=-1)
        min_p = torch.tensor([1.0, 0.0] * 20, device=DEVICE)
        indices = torch.randperm(400, generator=torch.Generator().manual_seed(3)).to(DEVICE, dtype) % 40
        samples = sampling.min_p_sampling_from_probs(probs, min_p, indices=indices, generator=generator())
        greedy = indices % 2 == 0
        assert torch.equal(samples[greedy].long(), probs.argmax(dim=-1)[indices[greedy].long()])

    def test_strided(self) -> None:
        probs = torch.softmax(logits(ROWS, SMALL), dim=-1)
        packed = torch.rand(ROWS, 3, device=DEVICE)
        samples = sampling.top_p_sampling_from_probs(probs, packed[:, 1], generator=generator())
        dense = sampling.top_p_sampling_from_probs(probs, packed[:, 1].contiguous(), generator=generator())
        assert torch.equal(samples, dense)

    def test_seed_per_row(self, release: str) -> None:
        probs = torch.softmax(logits(8, SMALL), dim=-1)
        seed, offset = torch.arange(8, device=DEVICE) + 7, torch.arange(8, device=DEVICE) * 4

        def sample(seed: torch.Tensor, offset: torch.Tensor) -> Any:
            return sampling.top_p_sampling_from_probs(probs, 0.9, seed=seed, offset=offset)

        samples = sampling.sample_with_row_seeds(sample, seed, offset)
        assert torch.equal(samples, rng.sample_row_by_row(sample, seed, offset))
        if release == "0.7.1":
            with pytest.raises(UnsupportedArgument, match="seed per row"):
                sample(seed, offset)
        else:
            assert torch.equal(samples, sample(seed, offset))


class TestFilters:
    @pytest.mark.parametrize("vocabulary", [1000, LARGE])
    def test_of_top_k(self, vocabulary: int) -> None:
        values = logits(8, vocabulary)
        top_k = torch.tensor([1, 2, 3, 10, 50, 100, 500, 999], device=DEVICE, dtype=torch.int32)
        assert torch.equal(sampling.top_k_mask_logits(values, top_k), reference.top_k_mask_logits(values, top_k))
        probs = torch.softmax(values, dim=-1)
        torch.testing.assert_close(
            sampling.top_k_renorm_probs(probs, top_k), reference.top_k_renorm_probs(probs, top_k), rtol=1e-5, atol=1e-7
        )

    @pytest.mark.parametrize("vocabulary", [1000, LARGE])
    def test_softmax(self, vocabulary: int) -> None:
        values = logits(8, vocabulary)
        for _ in range(20):
            # Written just before it is read.
            temperature = torch.full((8,), 9.0, device=DEVICE)
            temperature.copy_(torch.arange(1, 9, device=DEVICE) / 4)
            result = sampling.softmax(values, temperature)
            torch.testing.assert_close(result, reference.softmax(values, temperature), rtol=1e-4, atol=1e-8)

    @pytest.mark.parametrize("function", ["top_k_mask_logits", "softmax"])
    def test_on_several_streams(self, function: str) -> None:
        """Launches that overlap, each with its own result to keep."""
        streams = [torch.cuda.Stream() for _ in range(4)]
        inputs = [logits(4, LARGE) * (number + 1) / 4 for number in range(len(streams))]
        options: tuple[Any, ...] = (50,) if function == "top_k_mask_logits" else ()
        expected = [getattr(reference, function)(values, *options) for values in inputs]
        torch.cuda.synchronize()
        results: list[list[torch.Tensor]] = [[] for _ in streams]
        for _ in range(50):
            for stream, values, kept in zip(streams, inputs, results, strict=True):
                with torch.cuda.stream(stream):
                    kept.append(getattr(sampling, function)(values, *options))
        torch.cuda.synchronize()
        for kept, right in zip(results, expected, strict=True):
            for result in kept:
                torch.testing.assert_close(result, right, rtol=1e-4, atol=1e-8)


class TestCapture:
    @pytest.mark.parametrize("registered", [False, True], ids=["default", "registered"])
    @pytest.mark.parametrize("case", FUNCTIONS)
    def test_each_replay_draws_anew(self, case: str, registered: bool) -> None:
        own = generator(5, 0) if registered else None
        state = own or torch.cuda.default_generators[DEVICE.index]
        options = {"generator": own} if own else {}
        name, thresholds, _ = FUNCTIONS[case]
        values = logits(ROWS, SMALL) if name.endswith("logits") else torch.softmax(logits(ROWS, SMALL), dim=-1)
        call(case, ROWS, SMALL, seed=1, offset=0)  # compiles the module
        graph = torch.cuda.CUDAGraph()
        if own:
            graph.register_generator_state(own)
        with torch.cuda.graph(graph):
            samples = getattr(sampling, name)(values, **thresholds, **options)
        before = state.get_offset()
        seen, moved = [], []
        for _ in range(3):
            graph.replay()
            torch.cuda.synchronize()
            seen.append(samples.clone())
            moved.append(state.get_offset() - before)
        assert moved[0] > 0
        assert moved == [moved[0] * (number + 1) for number in range(3)], (
            "each replay moves it once, by the same amount"
        )
        assert not torch.equal(seen[0], seen[1])
        assert not torch.equal(seen[1], seen[2])
        state.set_offset(before)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(samples, seen[0]), "the same state, the same tokens"

    def test_a_generator_that_is_not_registered_is_refused(self) -> None:
        probs, own = torch.softmax(logits(ROWS, SMALL), dim=-1), generator()
        sampling.sampling_from_probs(probs, seed=1, offset=0)
        graph = torch.cuda.CUDAGraph()
        with (
            pytest.raises(UnsupportedArgument, match="register_generator_state"),
            torch.cuda.graph(graph),
        ):
            sampling.sampling_from_probs(probs, generator=own)

    @pytest.mark.parametrize("case", FUNCTIONS)
    def test_seed_and_offset_tensors_are_read_by_each_replay(self, case: str) -> None:
        seed = torch.zeros(1, dtype=torch.int64, device=DEVICE)
        offset = torch.zeros(1, dtype=torch.int64, device=DEVICE)
        name, thresholds, _ = FUNCTIONS[case]
        values = logits(ROWS, SMALL) if name.endswith("logits") else torch.softmax(logits(ROWS, SMALL), dim=-1)
        getattr(sampling, name)(values, **thresholds, seed=seed, offset=offset)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            samples = getattr(sampling, name)(values, **thresholds, seed=seed, offset=offset)
        for number in (3, 4):
            seed.fill_(number)
            offset.fill_(4 * number)
            graph.replay()
            torch.cuda.synchronize()
            eager = getattr(sampling, name)(values, **thresholds, seed=number, offset=4 * number)
            assert torch.equal(samples, eager)


class TestHeader:
    """An engine's kernel on flashinfer_compat/sampling.cuh, against FlashInfer's own on the same numbers."""

    @pytest.fixture(scope="class")
    def library(self, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
        adapter = flashinfer.report()["adapter"]
        major, minor = torch.cuda.get_device_capability(DEVICE)
        path = tmp_path_factory.mktemp("header") / "sampling.so"
        compile_shared(
            Path(__file__).parents[1] / "contract" / "sampling_header.cu",
            path,
            architectures=[f"sm_{major}{minor}" + ("a" if major >= 9 else "")],
            standard=17,
            defines=[f"EXPECTS_LAST_VALID_INDEX={str(adapter in ('0.7.3', '0.7.4')).lower()}"],
        )
        return ctypes.CDLL(str(path))

    def numbers(self, library: ctypes.CDLL, rows: int, seed: int, offset: int) -> torch.Tensor:
        drawn = torch.empty(rows, device=DEVICE)
        stream = torch.cuda.current_stream().cuda_stream
        status = library.draw_numbers(
            ctypes.c_void_p(drawn.data_ptr()), ctypes.c_uint32(rows), ctypes.c_uint64(seed), ctypes.c_uint64(offset),
            ctypes.c_void_p(stream),
        )  # fmt: skip
        assert status == 0
        return drawn

    def sample(
        self, library: ctypes.CDLL, probs: torch.Tensor, numbers: torch.Tensor, deterministic: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, vocabulary = probs.shape
        tokens = torch.full((rows,), -7, dtype=torch.int32, device=DEVICE)
        last_valid = torch.full((rows,), -1, dtype=torch.int32, device=DEVICE)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (probs, numbers, tokens, last_valid)]
        stream = torch.cuda.current_stream().cuda_stream
        status = library.sample_rows(
            *pointers, ctypes.c_uint32(rows), ctypes.c_uint32(vocabulary), ctypes.c_bool(deterministic),
            ctypes.c_void_p(stream),
        )  # fmt: skip
        assert status == 0
        return tokens, last_valid

    @pytest.mark.parametrize(
        ("vocabulary", "deterministic"), [(SMALL, True), (SMALL, False), (LARGE, True), (4093, True)]
    )
    def test_same_tokens_as_flashinfers_kernel(
        self, library: ctypes.CDLL, vocabulary: int, deterministic: bool
    ) -> None:
        probs = torch.softmax(logits(500, vocabulary), dim=-1)
        numbers = self.numbers(library, 500, seed=99, offset=8)
        tokens, _ = self.sample(library, probs, numbers, deterministic)
        expected = sampling.sampling_from_probs(probs, seed=99, offset=8, deterministic=deterministic)
        assert torch.equal(tokens, expected)

    @pytest.mark.parametrize("vocabulary", [SMALL, LARGE, 4093])
    def test_a_number_above_the_mass_takes_the_last_valid_token(self, library: ctypes.CDLL, vocabulary: int) -> None:
        probs = torch.zeros(3, vocabulary, device=DEVICE)
        probs[0, 5], probs[1, vocabulary - 1], probs[2, :] = 0.25, 0.25, 0
        tokens, last_valid = self.sample(library, probs, torch.ones(3, device=DEVICE), True)
        assert tokens.tolist() == last_valid.tolist() == [5, vocabulary - 1, -1]


def test_distances_see_a_wrong_distribution() -> None:
    """The bound is no formality: a filter that is off by one token fails it."""
    probs = torch.tensor([[0.4, 0.3, 0.2, 0.1]], device=DEVICE)
    indices = torch.zeros(1 << 20, dtype=torch.int32, device=DEVICE)
    samples = sampling.top_k_sampling_from_probs(probs, 3, indices, generator=generator())
    limit = bound(1 << 20, 4)
    assert total_variation(samples, torch.tensor([4, 3, 2, 0]) / 9) < limit
    assert total_variation(samples, torch.tensor([4, 3, 0, 0]) / 7) > limit

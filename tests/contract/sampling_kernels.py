"""The seam under sampling: what FlashInfer's own wrappers hand to the compiled module, and how its kernels read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import flashinfer.sampling
import flashinfer.topk
import pytest
import torch

#: The parameters of each sampling kernel (csrc/flashinfer_sampling_binding.cu), the same in all releases.
_NUMBERS = ("seed_arr", "seed", "offset_arr", "offset")
_SAMPLED = ("probs", "samples", "valid", "indices")
KERNELS: dict[str, tuple[str, ...]] = {
    "sampling_from_logits": ("probs", "samples", "indices", "deterministic", *_NUMBERS),
    "sampling_from_probs": (*_SAMPLED, "deterministic", *_NUMBERS),
    "top_p_sampling_from_probs": (*_SAMPLED, "top_p_arr", "top_p", "deterministic", *_NUMBERS),
    "top_k_sampling_from_probs": (*_SAMPLED, "top_k_arr", "top_k", "deterministic", *_NUMBERS),
    "min_p_sampling_from_probs": (*_SAMPLED, "min_p_arr", "min_p", "deterministic", *_NUMBERS),
    "top_k_top_p_sampling_from_probs": (
        *_SAMPLED, "top_k_arr", "top_k", "top_p_arr", "top_p", "deterministic", *_NUMBERS,
    ),
    "chain_speculative_sampling": (
        "draft_probs", "draft_token_ids", "target_probs", "tokens", "accepted", "emitted", "deterministic", *_NUMBERS,
    ),
    "top_p_renorm_probs": ("probs", "result", "top_p_arr", "top_p", "is_deterministic", "workspace"),
    "top_k_renorm_probs": ("probs", "result", "top_k_arr", "top_k", "is_deterministic", "row_states"),
    "top_k_mask_logits": ("probs", "result", "top_k_arr", "top_k", "row_states"),
    "radix_topk": (
        "input", "indices", "values", "row_states", "k", "sorted", "deterministic", "tie_break", "dsa_graph_safe",
    ),
}  # fmt: skip
#: Kernels that read a threshold by output row instead of by distribution (0.7.1's sampling.cuh, #5340).
BY_OUTPUT_ROW = {"0.7.1": {"top_k_sampling_from_probs", "min_p_sampling_from_probs"}}


class Launch(NamedTuple):
    """What one kernel was given."""

    kernel: str
    arguments: dict[str, Any]

    def thresholds(self, name: str, release: str) -> list[float]:
        """What the kernel reads as the threshold `name` ("top_k", …) of each output row, through its raw pointer."""
        tensor, indices = self.arguments[f"{name}_arr"], self.arguments["indices"]
        rows = len(self.arguments["samples"])
        assert tensor.shape == self.arguments["probs"].shape[:1], "the binding checks the length"
        # top_k is read as the type of the samples (IdType), the others as fp32.
        dtype = self.arguments["samples"].dtype if name == "top_k" else torch.float32
        by_output_row = indices is None or self.kernel in BY_OUTPUT_ROW.get(release, ())
        positions = list(range(rows)) if by_output_row else as_read(indices, self.arguments["samples"].dtype, rows)
        values = as_read(tensor, dtype, max(positions) + 1)
        return [values[position] for position in positions]


def as_read(tensor: torch.Tensor, dtype: torch.dtype, count: int) -> list[Any]:
    """`count` elements of `dtype` from the tensor's address on; an AssertionError where its memory ends before."""
    memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    start, size = tensor.storage_offset() * tensor.element_size(), dtype.itemsize
    assert start + count * size <= len(memory), "the kernel reads past the end"
    return memory[start : start + count * size].clone().view(dtype).tolist()


class RecordingModule:
    """Stands for the compiled module: row i samples entry i (modulo the vocabulary), radix top-k is computed."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def build_and_load(self) -> RecordingModule:
        return self

    def __getattr__(self, name: str) -> Any:
        def launch(*arguments: Any) -> None:
            given = dict(zip(KERNELS[name], arguments, strict=True))
            self.launches.append(Launch(name, given))
            if "samples" in given:
                given["samples"].copy_(torch.arange(len(given["samples"])) % given["probs"].size(-1))
            if "valid" in given:
                given["valid"].fill_(True)
            if name == "radix_topk":
                values, indices = given["input"].topk(given["k"], dim=-1, sorted=given["sorted"])
                given["values"].copy_(values)
                given["indices"].copy_(indices)
            if name in ("top_k_renorm_probs", "top_k_mask_logits"):
                given["result"].copy_(given["probs"])

        return launch

    def only(self) -> Launch:
        (launch,) = self.launches
        return launch


class Generator:
    """A CUDA generator's interface: a seed, and an offset in multiples of 4. It counts how often it is moved."""

    device = torch.device("cpu")

    def __init__(self, seed: int = 1234, offset: int = 100) -> None:
        self.seed, self.offset, self.moves = seed, offset, 0

    def initial_seed(self) -> int:
        return self.seed

    def get_offset(self) -> int:
        return self.offset

    def set_offset(self, offset: int) -> None:
        assert offset % 4 == 0
        self.offset, self.moves = offset, self.moves + 1

    def get_state(self) -> torch.Tensor:
        return torch.tensor([self.seed, self.offset]).view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:
        self.set_offset(int(state.view(torch.int64)[1]))


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingModule]:
    """The recording module in place of the compiled ones of `flashinfer.sampling` and `flashinfer.topk`."""
    recording = RecordingModule()
    monkeypatch.setattr(flashinfer.sampling, "gen_sampling_module", lambda: recording)
    monkeypatch.setattr(flashinfer.topk, "gen_topk_module", lambda: recording)
    caches = (flashinfer.sampling.get_sampling_module, flashinfer.topk.get_topk_module)
    for cached in caches:
        cached.cache_clear()
    yield recording
    for cached in caches:
        cached.cache_clear()

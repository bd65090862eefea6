"""Seeds and offsets of sampling, drawn here by the newest release's rule: one state gives one stream on all releases.

FlashInfer up to 0.7.2.post1 returns the offset *behind* the range that it reserves (sampling.py, get_seed_and_offset):
its numbers are those of the generator's next user. 0.7.4 returns the range's own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from ..errors import InvalidArgument, UnsupportedArgument

#: Random numbers that the rejection kernels reserve for each row (top-p, top-k, and both).
ROUNDS = 32
#: A seed or an offset as the kernels take it: a number, or an int64 or uint64 tensor of one or one per output row.
Number: TypeAlias = "int | torch.Tensor"


def check(
    probs: torch.Tensor,
    indices: torch.Tensor | None,
    generator: torch.Generator | None,
    seed: Number | None,
    offset: Number | None,
) -> None:
    """Seed and offset belong together, as two numbers or two tensors; FlashInfer drops one that comes alone."""
    if seed is None and offset is None:
        if generator is not None and generator.device != probs.device:
            raise InvalidArgument(f"generator is on {generator.device}, the distributions are on {probs.device}")
        return
    if seed is None or offset is None:
        given = "offset" if seed is None else "seed"
        raise InvalidArgument(f"{given} without the other: FlashInfer would draw both. Pass both, or a generator.")
    if isinstance(seed, torch.Tensor) and isinstance(offset, torch.Tensor):
        rows = output_rows(probs, indices)
        _check_tensor("seed", seed, rows, probs.device)
        _check_tensor("offset", offset, rows, probs.device)
    elif isinstance(seed, torch.Tensor) or isinstance(offset, torch.Tensor):
        raise InvalidArgument("seed and offset must both be tensors or both be numbers")
    else:
        _check_number("seed", seed, -(1 << 63), 1 << 64)
        _check_number("offset", offset, 0, 1 << 63)


def check_drafts(
    draft_probs: torch.Tensor, generator: torch.Generator | None, seed: Number | None, offset: Number | None
) -> None:
    check(draft_probs, None, generator, seed, offset)


def one_per_logit(
    logits: torch.Tensor,
    indices: torch.Tensor | None,
    generator: torch.Generator | None,
    seed: Number | None,
    offset: Number | None,
) -> tuple[Number, Number]:
    """The seed and offset to use where the kernel takes a number for each logit (Gumbel noise)."""
    if seed is not None and offset is not None:
        return _signed(seed), offset
    return drawn(output_rows(logits, indices) * logits.size(1), generator, logits.device)


def one_per_row(
    probs: torch.Tensor,
    indices: torch.Tensor | None,
    generator: torch.Generator | None,
    seed: Number | None,
    offset: Number | None,
) -> tuple[Number, Number]:
    """The seed and offset to use where the kernel takes one number for each output row."""
    if seed is not None and offset is not None:
        return _signed(seed), offset
    return drawn(output_rows(probs, indices), generator, probs.device)


def rounds_per_row(
    probs: torch.Tensor,
    indices: torch.Tensor | None,
    generator: torch.Generator | None,
    seed: Number | None,
    offset: Number | None,
) -> tuple[Number, Number]:
    """The seed and offset to use where the kernel takes a number for each round of rejection."""
    if seed is not None and offset is not None:
        return _signed(seed), offset
    return drawn(output_rows(probs, indices) * ROUNDS, generator, probs.device)


def two_more_than_drafts(
    draft_probs: torch.Tensor, generator: torch.Generator | None, seed: Number | None, offset: Number | None
) -> tuple[Number, Number]:
    """The seed and offset for chains of n drafts: the kernel takes n + 2 numbers a row, which only 0.7.4 reserves."""
    if seed is not None and offset is not None:
        return _signed(seed), offset
    return drawn(draft_probs.size(0) * (draft_probs.size(1) + 2), generator, draft_probs.device)


def drawn(numbers: int, generator: torch.Generator | None, device: torch.device) -> tuple[Number, Number]:
    """Reserve `numbers` of the generator's (the device's default one's) and return where they are.

    The generator moves on by `numbers`, rounded up to a multiple of 4. While a CUDA graph is captured its state cannot
    be read: seed and offset are then two tensors that each replay draws anew.
    """
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return _drawn_in_replay(generator, device)
    if generator is None:
        generator = torch.cuda.default_generators[device.index]
    seed, offset = generator.initial_seed(), generator.get_offset()
    generator.set_offset(offset + (numbers + 3) // 4 * 4)
    return _signed(seed), offset


def several(seed: Number | None, offset: Number | None) -> bool:
    """Whether there is one seed or one offset for each row."""
    return (isinstance(seed, torch.Tensor) and seed.numel() > 1) or (
        isinstance(offset, torch.Tensor) and offset.numel() > 1
    )


def sample_with_row_seeds(sample: Callable[[torch.Tensor, torch.Tensor], Any], seed: Any, offset: Any) -> Any:
    """``sample(seed, offset)`` with a seed and an offset for each row, tensors (rows,) of int64 or uint64.

    FlashInfer 0.7.1 takes only one for all rows. There this calls `sample` once for each row, on the whole batch, and
    keeps that row: exact, without a synchronisation, and `rows` times the work. `sample` returns a tensor of samples or
    a tuple (samples, valid), and must change nothing.
    """
    return sample(seed, offset)


def sample_row_by_row(sample: Callable[[torch.Tensor, torch.Tensor], Any], seed: Any, offset: Any) -> Any:
    rows = max(seed.numel(), offset.numel())
    seeds, offsets = seed.expand(rows).contiguous(), offset.expand(rows).contiguous()
    # A row sampled alone would be another: its number in the batch goes into Philox, as the subsequence.
    results = [sample(seeds[row : row + 1], offsets[row : row + 1]) for row in range(rows)]
    if isinstance(results[0], tuple):
        return tuple(torch.stack([part[row] for row, part in enumerate(parts)]) for parts in zip(*results, strict=True))
    return torch.stack([result[row] for row, result in enumerate(results)])


sample_row_by_row.__doc__ = sample_with_row_seeds.__doc__


def output_rows(probs: torch.Tensor, indices: torch.Tensor | None) -> int:
    return len(probs if indices is None else indices)


def _drawn_in_replay(generator: torch.Generator | None, device: torch.device) -> tuple[Number, Number]:
    try:
        numbers = torch.empty(2, dtype=torch.int64, device=device).random_(generator=generator)
    except RuntimeError as error:
        raise UnsupportedArgument(
            "A generator that is not registered cannot be used in CUDA-graph capture, on any FlashInfer release. Call "
            "graph.register_generator_state(generator) before, pass seed and offset tensors, or use the default one."
        ) from error
    return numbers[:1], numbers[1:]


def _signed(seed: Number) -> Number:
    """The same 64 bits as an int64, which is what FlashInfer's bindings take a Python number for."""
    if isinstance(seed, torch.Tensor):
        return seed
    number = int(seed)  # NumPy's too, whose uint64 would not come down below zero
    return number - (1 << 64) if number >= 1 << 63 else number


def _check_tensor(name: str, value: torch.Tensor, rows: int, device: torch.device) -> None:
    if value.ndim != 1 or value.size(0) not in (1, rows):
        raise InvalidArgument(
            f"{name} has shape {tuple(value.shape)}; it must be (1,) or ({rows},), one per output row"
        )
    if value.dtype not in (torch.int64, torch.uint64):
        raise InvalidArgument(f"{name} is {value.dtype}; it must be int64 or uint64")
    if value.device != device:
        raise InvalidArgument(f"{name} is on {value.device}, the distributions are on {device}")
    if not value.is_contiguous():
        raise InvalidArgument(f"{name} must be contiguous")


def _check_number(name: str, value: Any, low: int, high: int) -> None:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} is {value!r}; it must be an integer or a tensor") from None
    if not low <= number < high:
        raise InvalidArgument(f"{name} is {value}; it must lie in [{low}, {high})")

"""`flashinfer.sampling` of FlashInfer 0.7.4 in plain PyTorch: the same arguments, distributions and filters.

Samples are drawn by PyTorch, so one seed gives other samples than FlashInfer's, of the same distribution. At a tie the
filters keep all entries of the tied value, as the kernels over the whole vocabulary do.
"""

from __future__ import annotations

from typing import TypeAlias

import torch

Threshold: TypeAlias = "torch.Tensor | float | int"
Number: TypeAlias = "torch.Tensor | int | None"
Samples: TypeAlias = "torch.Tensor | tuple[torch.Tensor, torch.Tensor]"


def softmax(
    logits: torch.Tensor, temperature: torch.Tensor | float | None = None, enable_pdl: bool | None = None
) -> torch.Tensor:
    """Probabilities (rows, vocabulary), fp32, of `logits` over `temperature`: a number or (rows,); 0: all equal."""
    scaled = logits.float()
    if temperature is not None:
        values = _per_row(temperature, scaled)
        scaled = scaled * torch.where(values == 0, 0.0, 1 / values)
    return torch.softmax(scaled, dim=-1)


def sampling_from_logits(
    logits: torch.Tensor,
    indices: torch.Tensor | None = None,
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Number = None,
    offset: Number = None,
) -> torch.Tensor:
    """One token (output rows,) from the softmax of ``logits[indices]``."""
    _check_nan(logits, check_nan)
    probs = torch.softmax(logits.float(), dim=-1)
    return _sampled(probs, indices, generator, seed, offset, return_valid=False)[0]


def sampling_from_probs(
    probs: torch.Tensor,
    indices: torch.Tensor | None = None,
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Number = None,
    offset: Number = None,
    return_valid: bool = False,
) -> Samples:
    """One token (output rows,) from ``probs[indices]``, and on demand which rows had any mass (output rows,), bool."""
    _check_nan(probs, check_nan)
    return _result(_sampled(probs.float(), indices, generator, seed, offset, return_valid))


def top_p_sampling_from_probs(
    probs: torch.Tensor,
    top_p: Threshold,
    indices: torch.Tensor | None = None,
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Number = None,
    offset: Number = None,
    return_valid: bool = False,
) -> Samples:
    """As `sampling_from_probs`, among the entries with less than `top_p` of mass above them."""
    _check_nan(probs, check_nan)
    kept = probs.float() * _in_top_p(probs.float(), top_p)
    return _result(_sampled(kept, indices, generator, seed, offset, return_valid))


def top_k_sampling_from_probs(
    probs: torch.Tensor,
    top_k: Threshold,
    indices: torch.Tensor | None = None,
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Number = None,
    offset: Number = None,
    return_valid: bool = False,
) -> Samples:
    """As `sampling_from_probs`, among the `top_k` largest entries; below 0 among all, 0 takes the largest."""
    _check_nan(probs, check_nan)
    kept = probs.float() * _in_top_k(probs.float(), top_k)
    return _result(_sampled(kept, indices, generator, seed, offset, return_valid))


def min_p_sampling_from_probs(
    probs: torch.Tensor,
    min_p: Threshold,
    indices: torch.Tensor | None = None,
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Number = None,
    offset: Number = None,
    return_valid: bool = False,
) -> Samples:
    """As `sampling_from_probs`, among the entries of at least `min_p` times the largest."""
    _check_nan(probs, check_nan)
    values = probs.float()
    kept = values * (values >= values.amax(dim=-1, keepdim=True) * _per_row(min_p, values))
    return _result(_sampled(kept, indices, generator, seed, offset, return_valid))


def top_k_top_p_sampling_from_logits(
    logits: torch.Tensor,
    top_k: Threshold,
    top_p: Threshold,
    indices: torch.Tensor | None = None,
    filter_apply_order: str = "top_k_first",
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Number = None,
    offset: Number = None,
    top_k_max: int | None = None,
) -> torch.Tensor:
    """`top_k_top_p_sampling_from_probs` of the softmax of `logits`."""
    result = top_k_top_p_sampling_from_probs(
        torch.softmax(logits.float(), dim=-1), top_k, top_p, indices, filter_apply_order, deterministic, generator,
        check_nan, seed, offset, top_k_max=top_k_max,
    )  # fmt: skip
    assert isinstance(result, torch.Tensor)
    return result


def top_k_top_p_sampling_from_probs(
    probs: torch.Tensor,
    top_k: Threshold,
    top_p: Threshold,
    indices: torch.Tensor | None = None,
    filter_apply_order: str = "top_k_first",
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    check_nan: bool = False,
    seed: Number = None,
    offset: Number = None,
    return_valid: bool = False,
    top_k_max: int | None = None,
) -> Samples:
    """``"top_k_first"``: top-p of what top-k keeps, made to sum to 1; ``"joint"``: both filters on `probs`.

    `top_k_max` bounds a `top_k` tensor where FlashInfer selects first: k up to 256 of 65536 entries or more.
    """
    _check_nan(probs, check_nan)
    values = probs.float()
    if filter_apply_order == "top_k_first":
        if isinstance(top_k, torch.Tensor) and top_k_max is not None and _selects_first(values, top_k_max):
            top_k = torch.where((top_k < 0) | (top_k > top_k_max), top_k_max, top_k)
        values = top_k_renorm_probs(values, top_k)
        kept = values * _in_top_p(values, top_p)
    elif filter_apply_order == "joint":
        kept = values * _in_top_k(values, top_k) * _in_top_p(values, top_p)
    else:
        raise ValueError(f"filter_apply_order is {filter_apply_order!r}; it must be 'top_k_first' or 'joint'")
    return _result(_sampled(kept, indices, generator, seed, offset, return_valid))


def top_p_renorm_probs(probs: torch.Tensor, top_p: Threshold, is_deterministic: bool = False) -> torch.Tensor:
    """`probs` (rows, vocabulary) of the entries with less than `top_p` of mass above them, made to sum to 1; fp32."""
    return _normalised(probs.float() * _in_top_p(probs.float(), top_p))


def top_k_renorm_probs(probs: torch.Tensor, top_k: Threshold, is_deterministic: bool = False) -> torch.Tensor:
    """`probs` (rows, vocabulary) of the `top_k` largest entries, made to sum to 1; of `probs`' dtype."""
    return _normalised(probs.float() * _in_top_k(probs.float(), top_k)).to(probs.dtype)


def top_k_mask_logits(logits: torch.Tensor, top_k: Threshold) -> torch.Tensor:
    """`logits` (rows, vocabulary) with -inf in place of all but the `top_k` largest entries."""
    return logits.masked_fill(~_in_top_k(logits.float(), top_k), float("-inf"))


def chain_speculative_sampling(
    draft_probs: torch.Tensor,
    draft_token_ids: torch.Tensor,
    target_probs: torch.Tensor,
    maybe_output_accepted_token_num: torch.Tensor | None = None,
    maybe_output_emitted_draft_token_num: torch.Tensor | None = None,
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    seed: Number = None,
    offset: Number = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens (b, n + 1), -1 behind the first rejected draft's substitute, and two counters (b,), added to if given.

    Drafts are emitted up to the first rejected one. The accepted count goes on behind that one: it says how many of
    the n drafts, each by itself, the target would take.
    """
    b, n, _ = draft_probs.shape
    device = draft_probs.device
    numbers = _uniform(b, n + 1, _generators(generator, seed, offset, b, device), device)
    drafts = draft_token_ids.long().unsqueeze(-1)
    p = draft_probs.float().gather(2, drafts).squeeze(-1)
    q = target_probs.float()[:, :n].gather(2, drafts).squeeze(-1)
    taken = numbers[:, :n] * p < q
    emitted = taken.long().cumprod(dim=1).sum(dim=1)
    residual = target_probs.float().clone()
    residual[:, :n] -= draft_probs.float()
    rows = torch.arange(b, device=device)
    last = _categorical(residual.clamp(min=0)[rows, emitted], numbers[:, n])
    positions = torch.arange(n + 1, device=device).expand(b, n + 1)
    padded = torch.cat([draft_token_ids.int(), draft_token_ids.new_zeros(b, 1).int()], dim=1)
    tokens = torch.where(positions < emitted.unsqueeze(1), padded, -1)
    tokens[rows, emitted] = last.int()
    counts = []
    for counter, count in (
        (maybe_output_accepted_token_num, taken.sum(dim=1)),
        (maybe_output_emitted_draft_token_num, emitted),
    ):
        counts.append(count.int() if counter is None else counter.add_(count))
    return tokens, counts[0], counts[1]


def _in_top_k(values: torch.Tensor, top_k: Threshold) -> torch.Tensor:
    """Which entries are among the `top_k` largest of their row, ties with the last one included."""
    vocabulary = values.size(-1)
    k = _per_row(top_k, values).long()
    k = torch.where(k < 0, vocabulary, k.clamp(1, vocabulary))
    last = values.sort(dim=-1, descending=True).values.gather(1, k.expand(values.size(0), 1) - 1)
    return values >= last


def _in_top_p(probs: torch.Tensor, top_p: Threshold) -> torch.Tensor:
    """Which entries have less than `top_p` of mass above them; ties share one fate, and the largest always stays."""
    ordered, order = probs.sort(dim=-1, descending=True)
    above = ordered.cumsum(dim=-1) - ordered
    # The mass above a tied entry is that above the first of its value.
    first = torch.searchsorted(-ordered, -ordered, side="left")
    kept = above.gather(1, first) < _per_row(top_p, probs)
    kept[:, 0] = True
    kept |= ordered == ordered[:, :1]
    return torch.empty_like(kept).scatter_(1, order, kept)


def _selects_first(values: torch.Tensor, bound: int) -> bool:
    return 0 < bound <= 256 and values.size(-1) >= 65536 and bound < values.size(-1)


def _sampled(
    kept: torch.Tensor,
    indices: torch.Tensor | None,
    generator: torch.Generator | None,
    seed: Number,
    offset: Number,
    return_valid: bool,
) -> tuple[torch.Tensor, ...]:
    """Samples, of int32 or the type of `indices`, from the mass `kept` of each distribution; and which rows had any."""
    rows = kept if indices is None else kept[indices.long()]
    generators = _generators(generator, seed, offset, rows.size(0), kept.device)
    samples = _categorical(rows, _uniform(rows.size(0), 1, generators, kept.device).squeeze(1))
    samples = samples.to(torch.int32 if indices is None else indices.dtype)
    return (samples, rows.sum(dim=-1) > 0) if return_valid else (samples,)


def _categorical(mass: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The entry of each row at which the mass exceeds its number in (0, 1]; 0 where there is none."""
    summed = mass.double().cumsum(dim=-1)
    sampled = torch.searchsorted(summed, numbers.double().unsqueeze(1) * summed[:, -1:], side="left").squeeze(1)
    return sampled.clamp(max=mass.size(-1) - 1) * (summed[:, -1] > 0)


def _uniform(rows: int, columns: int, generators: list[torch.Generator | None], device: torch.device) -> torch.Tensor:
    """Numbers in (0, 1], fp64, from one generator or one for each row."""
    if len(generators) == 1:
        return 1 - torch.rand(rows, columns, dtype=torch.float64, generator=generators[0], device=device)
    drawn = [torch.rand(columns, dtype=torch.float64, generator=generator, device=device) for generator in generators]
    return 1 - torch.stack(drawn)


def _generators(
    generator: torch.Generator | None, seed: Number, offset: Number, rows: int, device: torch.device
) -> list[torch.Generator | None]:
    """The caller's generator, or one for each pair of seed and offset."""
    if seed is None or offset is None:
        return [generator]
    seeds = seed.tolist() if isinstance(seed, torch.Tensor) else [seed]
    offsets = offset.tolist() if isinstance(offset, torch.Tensor) else [offset]
    pairs = max(len(seeds), len(offsets))
    seeds, offsets = seeds * (pairs // len(seeds)), offsets * (pairs // len(offsets))
    # The row goes into the seed, as FlashInfer's goes into Philox: one seed at two rows gives two streams.
    mixed = [hash((seeds[row], offsets[row], row if pairs > 1 else 0)) for row in range(pairs)]
    return [torch.Generator(device).manual_seed(number & ((1 << 63) - 1)) for number in mixed]


def _per_row(threshold: Threshold, values: torch.Tensor) -> torch.Tensor:
    """`threshold` as (rows, 1) or (1, 1)."""
    return torch.as_tensor(threshold, device=values.device).reshape(-1, 1)


def _normalised(values: torch.Tensor) -> torch.Tensor:
    return values / values.sum(dim=-1, keepdim=True)


def _check_nan(values: torch.Tensor, check_nan: bool) -> None:
    if check_nan and bool(torch.any(torch.isnan(values))):
        raise ValueError("NaN among the probabilities or logits")


def _result(parts: tuple[torch.Tensor, ...]) -> Samples:
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])

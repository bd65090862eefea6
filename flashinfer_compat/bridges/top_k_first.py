"""Top-k, then top-p over what it keeps: the route of FlashInfer 0.7.4, from parts that every release has.

For a large vocabulary and a small k, 0.7.4 selects the k entries and samples among them, with `indices` too, and with a
k for each row if `top_k_max` bounds it (sampling.py, _top_k_first_fast_path_applicable). At a tie it keeps exactly k,
and a row whose k is above `top_k_max` keeps `top_k_max`: both differ from the route over the whole vocabulary.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from . import scratch

#: Where 0.7.4 selects first: k up to this, of a vocabulary from this size on.
LARGEST_K = 256
SMALLEST_VOCABULARY = 65536


def from_logits(native: Callable[..., Any]) -> Callable[..., Any]:
    """`top_k_top_p_sampling_from_logits` with `top_k_max`, for a release whose own lacks it."""
    top_k_mask_logits = _part("sampling", "top_k_mask_logits")
    sample_top_k_first = _sampler(
        whole=lambda logits, top_k: torch.softmax(top_k_mask_logits(logits, top_k), dim=-1),
        selected=lambda values: torch.softmax(values, dim=-1),
        fill=float("-inf"),
    )

    def top_k_top_p_sampling_from_logits(
        logits: torch.Tensor,
        top_k: Any,
        top_p: Any,
        indices: torch.Tensor | None,
        filter_apply_order: str,
        deterministic: bool,
        generator: torch.Generator | None,
        check_nan: bool,
        seed: Any,
        offset: Any,
        *,
        top_k_max: int | None,
    ) -> Any:
        if filter_apply_order == "top_k_first":
            return sample_top_k_first(
                logits, top_k, top_p, indices, deterministic, check_nan, seed, offset, False, top_k_max
            )
        return native(
            logits, top_k, top_p, indices, filter_apply_order, deterministic, generator, check_nan, seed, offset
        )

    return top_k_top_p_sampling_from_logits


def from_probs(native: Callable[..., Any]) -> Callable[..., Any]:
    """`top_k_top_p_sampling_from_probs` with `top_k_max`, for a release whose own lacks it."""
    top_k_renorm_probs = _part("sampling", "top_k_renorm_probs")
    sample_top_k_first = _sampler(
        whole=lambda probs, top_k: top_k_renorm_probs(probs, top_k),
        selected=lambda values: values / values.sum(dim=-1, keepdim=True),
        fill=0.0,
    )

    def top_k_top_p_sampling_from_probs(
        probs: torch.Tensor,
        top_k: Any,
        top_p: Any,
        indices: torch.Tensor | None,
        filter_apply_order: str,
        deterministic: bool,
        generator: torch.Generator | None,
        check_nan: bool,
        seed: Any,
        offset: Any,
        return_valid: bool,
        *,
        top_k_max: int | None,
    ) -> Any:
        if filter_apply_order == "top_k_first":
            return sample_top_k_first(
                probs, top_k, top_p, indices, deterministic, check_nan, seed, offset, return_valid, top_k_max
            )
        return native(
            probs,
            top_k,
            top_p,
            indices,
            filter_apply_order,
            deterministic,
            generator,
            check_nan,
            seed,
            offset,
            return_valid,
        )

    return top_k_top_p_sampling_from_probs


def selected_size(x: torch.Tensor, top_k: Any, top_k_max: int | None) -> int:
    """How many entries of each row are selected first; 0 where the whole vocabulary is sampled."""
    bound = top_k_max if isinstance(top_k, torch.Tensor) else top_k
    vocabulary = x.size(-1)
    if bound is None or not 0 < bound <= LARGEST_K or vocabulary < SMALLEST_VOCABULARY:
        return 0
    return bound if bound < vocabulary else 0


def _sampler(
    whole: Callable[[torch.Tensor, Any], torch.Tensor], selected: Callable[[torch.Tensor], torch.Tensor], fill: float
) -> Callable[..., Any]:
    """Both routes for logits or for probabilities: `whole` and `selected` give what top-p samples from.

    `fill` is what an entry has that takes no part.
    """
    select = _part("topk", "top_k")
    sample = _part("sampling", "top_p_sampling_from_probs")

    def sample_top_k_first(
        x: torch.Tensor,
        top_k: Any,
        top_p: Any,
        indices: torch.Tensor | None,
        deterministic: bool,
        check_nan: bool,
        seed: Any,
        offset: Any,
        return_valid: bool,
        top_k_max: int | None,
    ) -> Any:
        size = selected_size(x, top_k, top_k_max)
        if not size:
            return sample(whole(x, top_k), top_p, indices, deterministic, None, check_nan, seed, offset, return_valid)
        values, tokens = select(x, size, sorted=True, deterministic=deterministic)
        values = values.float()
        if isinstance(top_k, torch.Tensor):
            values = values.masked_fill(~_kept(top_k.int(), size), fill)
        result = sample(selected(values), top_p, indices, deterministic, None, check_nan, seed, offset, return_valid)
        if return_valid:
            return _tokens(tokens, indices, result[0]), result[1]
        return _tokens(tokens, indices, result)

    return sample_top_k_first


def _kept(top_k: torch.Tensor, size: int) -> torch.Tensor:
    """Which of `size` sorted entries each row keeps: the first k, one for k = 0, all for k < 0."""
    k = torch.where(top_k < 0, size, top_k.clamp(min=1))
    return torch.arange(size, device=top_k.device) < k.unsqueeze(-1)


def _tokens(tokens: torch.Tensor, indices: torch.Tensor | None, positions: torch.Tensor) -> torch.Tensor:
    """The tokens (distributions, k) at `positions` (output rows,), of the type that `positions` have."""
    if indices is None:
        return tokens.gather(1, positions.long().unsqueeze(1)).squeeze(1).to(positions.dtype)
    return tokens[indices.long(), positions.long()].to(positions.dtype)


def _part(module: str, name: str) -> Callable[..., Any]:
    """FlashInfer's function, with scratch that streams do not share."""
    return scratch.per_stream(getattr(importlib.import_module(f"flashinfer.{module}"), name))

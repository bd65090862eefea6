"""Sampling: distributions, filters, and what a seed repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ...reference import sampling as reference
from ..case import Case, Function, Measure, Operation, Outputs, Workload
from ..draw import Draw
from ..library import FACADE, Library

#: Samples of a distribution of `_SUPPORT` tokens among `_VOCABULARY`.
_DRAWS, _SUPPORT, _VOCABULARY = 1 << 14, 64, 256
_ROWS = 64


def _distribution(draw: Draw, vocabulary: int = _VOCABULARY) -> torch.Tensor:
    """(1, vocabulary), fp32."""
    places = draw.permutation(vocabulary)[:_SUPPORT].long()
    probs = torch.zeros(1, vocabulary, device=draw.device)
    probs[0, places] = torch.softmax(2 * draw.normal(_SUPPORT), dim=0)
    return probs


def _thresholds(probs: torch.Tensor, names: tuple[str, ...]) -> dict[str, float | int]:
    """Halfway between two entries, so that rounding decides nothing."""
    ordered = probs[0].double().sort(descending=True).values
    above = ordered.cumsum(0) - ordered
    entry = int((above < 0.8).sum()) - 1
    every = {
        "top_k": 20,
        "top_p": float(above[entry] + ordered[entry] / 2),
        "min_p": float((ordered[30] + ordered[31]) / 2 / ordered[0]),
    }
    return {name: every[name] for name in names}


@dataclass(frozen=True, kw_only=True)
class Distribution(Workload):
    """Many samples of one distribution, by a function of `filters`."""

    function: str
    filters: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def prepare(self, draw: Draw, library: Library) -> Operation:
        probs, function = _distribution(draw), getattr(library.sampling, self.function)
        values = probs.log() if self.function.endswith("logits") else probs
        options = {**_thresholds(probs, self.filters), **self.options}
        indices = torch.zeros(_DRAWS, dtype=torch.int32, device=draw.device)
        generator = draw.generator()

        def run() -> Outputs:
            return (function(values, **options, indices=indices, generator=generator),)

        return Operation(run)

    def expected(self, draw: Draw) -> Outputs:
        probs = _distribution(draw)
        thresholds = _thresholds(probs, self.filters)
        kept, joint = probs, "filter_apply_order" in self.options
        for name, threshold in thresholds.items():
            # One filter behind the other, or each on the distribution itself.
            seen = probs if joint else kept
            kept = kept * (_FILTERED[name](seen, threshold) > 0)
            kept = kept / kept.sum()
        return (kept[0],)


def _min_p(probs: torch.Tensor, threshold: float | int) -> torch.Tensor:
    return probs * (probs >= threshold * probs.amax())


_FILTERED: dict[str, Callable[[torch.Tensor, float | int], torch.Tensor]] = {
    "top_k": reference.top_k_renorm_probs,
    "top_p": reference.top_p_renorm_probs,
    "min_p": _min_p,
}


@dataclass(frozen=True)
class FirstOfChain(Workload):
    """Drafts of another distribution: what is emitted first is the target's."""

    def prepare(self, draw: Draw, library: Library) -> Operation:
        chain = library.sampling.chain_speculative_sampling
        draft = torch.softmax(draw.normal(1, _SUPPORT), dim=-1)
        target = self._target(draw)
        bounds = draft[0].cumsum(0)[:-1].contiguous()
        tokens = torch.bucketize(draw.uniform(_DRAWS, 1), bounds, right=True).int()
        probs = draft.expand(_DRAWS, 1, _SUPPORT).contiguous(), target.expand(_DRAWS, 2, _SUPPORT).contiguous()
        generator = draw.generator()

        def run() -> Outputs:
            emitted, _, _ = chain(probs[0], tokens, probs[1], generator=generator)
            return (emitted[:, 0],)

        return Operation(run)

    def expected(self, draw: Draw) -> Outputs:
        draw.normal(1, _SUPPORT)  # the draft's
        return (self._target(draw)[0],)

    @staticmethod
    def _target(draw: Draw) -> torch.Tensor:
        return torch.softmax(2 * draw.normal(1, _SUPPORT), dim=-1)


@dataclass(frozen=True)
class RepeatedSeed(Workload):
    """Seed and offset, for all rows or `by_row`, give the same samples again."""

    by_row: bool = False

    def prepare(self, draw: Draw, library: Library) -> Operation:
        probs = torch.softmax(3 * draw.normal(_ROWS, 4000), dim=-1)
        function = library.sampling.top_k_top_p_sampling_from_probs
        seeds, offsets = (draw.integers(0, 1 << 30, _ROWS if self.by_row else 1).long() for _ in range(2))
        numbers: dict[str, Any] = {"seed": seeds, "offset": 4 * offsets}
        if not self.by_row:
            numbers = {name: int(value) for name, value in numbers.items()}

        def run() -> Outputs:
            return (function(probs, 40, 0.9, **numbers),)

        return Operation(run)

    def expected(self, draw: Draw) -> Outputs:
        return self.prepare(draw, FACADE).run()


def _rows(draw: Draw) -> torch.Tensor:
    """Logits."""
    return 3 * draw.normal(_ROWS, 4000)


def _top_k(draw: Draw) -> torch.Tensor:
    return draw.integers(1, 200, _ROWS)


def _top_p(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities, and for each row a threshold halfway between two entries."""
    probs = torch.softmax(_rows(draw), dim=-1)
    ordered = probs.double().sort(dim=-1, descending=True).values
    above = ordered.cumsum(dim=-1) - ordered
    entry = (above < 0.2 + 0.7 * draw.uniform(_ROWS, 1)).sum(dim=-1, keepdim=True) - 1
    return probs, (above + ordered / 2).gather(1, entry).squeeze(1).float()


def _distributed(name: str, function: str, *filters: str, **options: Any) -> Case:
    return Case(
        name=name,
        features=(f"sampling.{function}",),
        dtype=torch.float32,
        workload=Distribution(function=function, filters=filters, options=options),
        measure=Measure.P_VALUE,
    )


def _filtered(name: str, function: str, arguments: Callable[[Draw], tuple[Any, ...]]) -> Case:
    workload = Function(name=f"sampling.{function}", arguments=arguments)
    return Case(name=name, features=(f"sampling.{function}",), dtype=torch.float32, workload=workload)


def _repeated(name: str, feature: str, by_row: bool) -> Case:
    return Case(
        name=name,
        features=("sampling.top_k_top_p_sampling_from_probs", feature),
        dtype=torch.float32,
        workload=RepeatedSeed(by_row),
        measure=Measure.DIFFERING,
        # FlashInfer 0.7.1 takes the first seed for all rows.
        native=not by_row,
    )


CASES = (
    _distributed("sampling from logits", "sampling_from_logits"),
    _distributed("sampling from probabilities", "sampling_from_probs"),
    _distributed("sampling, top-k", "top_k_sampling_from_probs", "top_k"),
    _distributed("sampling, top-p", "top_p_sampling_from_probs", "top_p"),
    _distributed("sampling, min-p", "min_p_sampling_from_probs", "min_p"),
    _distributed("sampling, top-k, then top-p", "top_k_top_p_sampling_from_probs", "top_k", "top_p"),
    _distributed(
        "sampling, top-k and top-p jointly", "top_k_top_p_sampling_from_logits", "top_k", "top_p",
        filter_apply_order="joint",
    ),
    Case(
        name="speculative chain, first token",
        features=("sampling.chain_speculative_sampling",),
        dtype=torch.float32,
        workload=FirstOfChain(),
        measure=Measure.P_VALUE,
    ),
    _repeated("sampling, a seed repeated", "sampling.top_k_top_p_sampling_from_probs(seed)", by_row=False),
    _repeated("sampling, a seed for each row repeated", "sampling.row_seeds", by_row=True),
    _filtered("softmax, temperatures", "softmax", lambda draw: (_rows(draw), 0.5 + draw.uniform(_ROWS))),
    _filtered(
        "top_k_renorm_probs", "top_k_renorm_probs", lambda draw: (torch.softmax(_rows(draw), dim=-1), _top_k(draw))
    ),
    _filtered("top_p_renorm_probs", "top_p_renorm_probs", _top_p),
    _filtered("top_k_mask_logits", "top_k_mask_logits", lambda draw: (_rows(draw), _top_k(draw))),
)  # fmt: skip

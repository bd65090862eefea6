"""What a case is: a workload of the facade's, what it must give, and how far from that it may be."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import torch

from ..reference import accumulate_in
from .draw import Draw
from .library import REFERENCE, Library

Outputs: TypeAlias = tuple[torch.Tensor, ...]

#: Largest ||output - expected|| / ||expected|| of a row. Attention on tensor cores rounds the probabilities to the
#: queries' type besides the output, 2e-3 to 3e-3 together in bfloat16; an fp8 KV cache is exact in bfloat16.
TOLERANCES: Mapping[torch.dtype, float] = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
#: How often right samples are called wrong: a p-value below it.
FALSE_ALARM = 1e-6
#: A bin of the chi-square test holds at least so many expected samples; smaller ones are put together.
_SMALLEST_BIN = 5.0
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Measure(str, Enum):
    """How an output is compared with what is expected."""

    ERROR = "relative error"
    DIFFERING = "entries that differ"
    P_VALUE = "p-value"

    def __str__(self) -> str:
        return self.value

    def of(self, got: Outputs, expected: Outputs) -> float:
        """The worst of all outputs; infinity where one is not a number."""
        return {
            Measure.ERROR: _largest_error,
            Measure.DIFFERING: _differing,
            Measure.P_VALUE: _smallest_p_value,
        }[self](got, expected)

    def accepts(self, value: float, tolerance: float) -> bool:
        return value >= tolerance if self is Measure.P_VALUE else value <= tolerance


@dataclass(frozen=True)
class Operation:
    """A prepared call: `run` gives its outputs, any number of times.

    `inputs` are the tensors whose values may be changed in place between two runs.
    """

    run: Callable[[], Outputs]
    inputs: Outputs = ()


class Workload:
    """Inputs and a call, with any library that has FlashInfer's names."""

    def prepare(self, draw: Draw, library: Library) -> Operation:
        """Draw the inputs, which are the same for the same `draw`, and plan the call."""
        raise NotImplementedError

    def expected(self, draw: Draw) -> Outputs:
        """What the call must give: the reference's answer, its sums in float64."""
        with accumulate_in(torch.float64):
            return self.prepare(draw, REFERENCE).run()


@dataclass(frozen=True, kw_only=True)
class Function(Workload):
    """A plain function, ``"norm.rmsnorm"``: `arguments` draws what it is called with.

    `written` are the positions of the arguments that it writes, which then are its outputs.
    """

    name: str
    arguments: Callable[[Draw], tuple[Any, ...]]
    options: Mapping[str, Any] = field(default_factory=dict)
    written: tuple[int, ...] = ()

    def prepare(self, draw: Draw, library: Library) -> Operation:
        module, _, name = self.name.partition(".")
        function = getattr(getattr(library, module), name)
        arguments = tuple(library.widened(argument) for argument in self.arguments(draw))
        options, written = dict(self.options), self.written

        def run() -> Outputs:
            result = function(*arguments, **options)
            if written:
                return tuple(arguments[position] for position in written)
            return result if isinstance(result, tuple) else (result,)

        return Operation(run, tuple(argument for argument in arguments if _is_floating(argument)))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A workload that covers `features`, names that `supports` is asked.

    `quick` cases are those of ``--quick``. FlashInfer's own call is not timed where `native` is False: on some release
    it would read out of bounds.
    """

    name: str
    features: tuple[str, ...]
    dtype: torch.dtype
    workload: Workload
    measure: Measure = Measure.ERROR
    quick: bool = True
    native: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def tolerance(self) -> float:
        """The largest error, the number of entries that may differ, or the smallest p-value."""
        if self.measure is Measure.ERROR:
            return TOLERANCES[self.dtype]
        return FALSE_ALARM if self.measure is Measure.P_VALUE else 0.0

    def draw(self, seed: int, device: torch.device) -> Draw:
        """Its inputs of a `seed`, whatever other cases are run."""
        return Draw(seed ^ zlib.crc32(self.name.encode()), device)


def _largest_error(got: Outputs, expected: Outputs) -> float:
    _check_shapes(got, expected)
    return max(_error_of_rows(one, other) for one, other in zip(got, expected, strict=True))


def _error_of_rows(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest relative error of a row; of one that must be zero, the absolute one."""
    rows = [each.double().reshape(len(each), -1) for each in (got, expected)]
    # Equal infinities (the log-sum-exp of a row that sees nothing, a masked logit) are no difference.
    difference = torch.where(rows[0] == rows[1], 0.0, rows[0] - rows[1]).norm(dim=1)
    size = torch.where(rows[1].isfinite(), rows[1], 0.0).norm(dim=1)
    return float((difference / torch.where(size == 0, 1.0, size)).nan_to_num(nan=torch.inf, posinf=torch.inf).max())


def _differing(got: Outputs, expected: Outputs) -> float:
    _check_shapes(got, expected)
    return float(sum(int((_bits(a) != _bits(b)).sum()) for a, b in zip(got, expected, strict=True)))


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values if values.dtype is torch.bool else values.contiguous().view(_BITS[values.dtype.itemsize])


def _smallest_p_value(got: Outputs, expected: Outputs) -> float:
    return min(p_value(samples, exact) for samples, exact in zip(got, expected, strict=True))


def p_value(samples: torch.Tensor, exact: torch.Tensor) -> float:
    """How likely samples (any shape) of the distribution `exact` (vocabulary,) are at least so far from it: chi-square.

    0 where a sample cannot be of it.
    """
    exact, drawn = exact.double().cpu(), samples.flatten().long().cpu()
    if bool(((drawn < 0) | (drawn >= len(exact))).any()):
        return 0.0
    counts = torch.bincount(drawn, minlength=len(exact)).double()
    if bool((counts[exact == 0] > 0).any()):
        return 0.0
    wanted = exact * len(drawn) / exact.sum()
    small = wanted < _SMALLEST_BIN
    counts, wanted = (torch.cat([each[~small], each[small].sum().reshape(1)]) for each in (counts, wanted))
    held = wanted > 0
    statistic = ((counts - wanted)[held].square() / wanted[held]).sum()
    freedom = int(held.sum()) - 1
    if freedom == 0:
        return 1.0
    return float(torch.special.gammaincc(torch.tensor(freedom / 2).double(), statistic / 2))


def _check_shapes(got: Outputs, expected: Outputs) -> None:
    shapes = [[tuple(each.shape) for each in outputs] for outputs in (got, expected)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"outputs have shapes {shapes[0]}; expected are {shapes[1]}")


def _is_floating(argument: Any) -> bool:
    return isinstance(argument, torch.Tensor) and argument.is_floating_point()

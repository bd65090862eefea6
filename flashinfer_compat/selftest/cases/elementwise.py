"""Norms, rotary embeddings, packed bits, the largest entries of a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..case import Case, Function, Measure, Operation, Outputs, Workload
from ..draw import Draw
from ..library import Library

_ROWS, _HIDDEN = 67, 4096
_REQUESTS, _HEADS, _KV_HEADS, _HEAD_DIM = (1, 40, 25, 1), 8, 2, 128


def _norm(dtype: torch.dtype) -> Callable[[Draw], tuple[torch.Tensor, ...]]:
    return lambda draw: (draw.normal(_ROWS, _HIDDEN, dtype=dtype), draw.normal(_HIDDEN, dtype=dtype))


def _added(draw: Draw) -> tuple[torch.Tensor, ...]:
    """Input, residual and weight."""
    rows = (draw.normal(_ROWS, _HIDDEN, dtype=torch.bfloat16) for _ in range(2))
    return (*rows, draw.normal(_HIDDEN, dtype=torch.bfloat16))


def _quantised(draw: Draw) -> tuple[torch.Tensor, ...]:
    """Output in fp8, input, weight and scale."""
    out = torch.zeros(_ROWS, _HIDDEN, dtype=torch.float8_e4m3fn, device=draw.device)
    return (out, *_norm(torch.bfloat16)(draw), 0.02 + draw.uniform(1))


def _heads(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys."""
    rows = sum(_REQUESTS)
    queries = draw.normal(rows, _HEADS, _HEAD_DIM, dtype=torch.bfloat16)
    return queries, draw.normal(rows, _KV_HEADS, _HEAD_DIM, dtype=torch.bfloat16)


def _positioned(draw: Draw) -> tuple[torch.Tensor, ...]:
    return (*_heads(draw), draw.integers(0, 8192, sum(_REQUESTS)))


def _offset(draw: Draw) -> tuple[torch.Tensor, ...]:
    """Queries, keys, and each request's rows and first position."""
    lengths = torch.tensor((0, *_REQUESTS), dtype=torch.int32, device=draw.device)
    return (*_heads(draw), lengths.cumsum(0, dtype=torch.int32), draw.integers(0, 8192, len(_REQUESTS)))


def _cached(draw: Draw) -> tuple[Any, ...]:
    """Positions, queries and keys side by side, the head's size, and a table of cosines and sines."""
    angles = 6.3 * draw.uniform(8192, _HEAD_DIM // 2)
    queries, keys = (heads.flatten(1) for heads in _heads(draw))
    cache = torch.cat([angles.cos(), angles.sin()], dim=-1)
    return draw.integers(0, 8192, sum(_REQUESTS)).long(), queries, keys, _HEAD_DIM, cache


def _bits(draw: Draw) -> tuple[torch.Tensor, ...]:
    return (draw.uniform(1003) < 0.5,)


@dataclass(frozen=True)
class LargestEntries(Workload):
    """Values in descending order, and the entries at the places that are said to hold them."""

    k: int = 40

    def prepare(self, draw: Draw, library: Library) -> Operation:
        rows, top_k = draw.normal(8, 32000), library.topk.top_k

        def run() -> Outputs:
            values, indices = top_k(rows, self.k, sorted=True)
            return values, rows.gather(1, indices.long())

        return Operation(run, (rows,))


def _case(
    name: str,
    function: str,
    arguments: Callable[[Draw], tuple[Any, ...]],
    *,
    written: tuple[int, ...] = (),
    dtype: torch.dtype = torch.bfloat16,
    measure: Measure = Measure.ERROR,
    **options: Any,
) -> Case:
    workload = Function(name=function, arguments=arguments, options=options, written=written)
    return Case(name=name, features=(function,), dtype=dtype, workload=workload, measure=measure)


CASES = (
    _case("rmsnorm", "norm.rmsnorm", _norm(torch.bfloat16)),
    _case("rmsnorm, fp16", "norm.rmsnorm", _norm(torch.float16), dtype=torch.float16),
    _case("rmsnorm to fp8", "norm.rmsnorm_quant", _quantised, written=(0,)),
    _case("fused_add_rmsnorm", "norm.fused_add_rmsnorm", _added, written=(0, 1)),
    _case("gemma_rmsnorm", "norm.gemma_rmsnorm", _norm(torch.bfloat16)),
    _case("gemma_fused_add_rmsnorm", "norm.gemma_fused_add_rmsnorm", _added, written=(0, 1)),
    _case("rope by positions", "rope.apply_rope_pos_ids", _positioned),
    _case("rope by positions, neighbours", "rope.apply_rope_pos_ids", _positioned, interleave=True),
    _case("rope of Llama 3.1", "rope.apply_llama31_rope", _offset),
    _case("rope from a cache", "rope.apply_rope_with_cos_sin_cache", _cached),
    _case("packbits", "quantization.packbits", _bits, dtype=torch.bool, measure=Measure.DIFFERING, bitorder="little"),
    Case(
        name="top_k",
        features=("topk.top_k",),
        dtype=torch.float32,
        workload=LargestEntries(),
        measure=Measure.DIFFERING,
    ),
)

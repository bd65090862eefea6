"""Scratch buffers that streams share in FlashInfer, one for each stream and each captured call instead.

Multi-CTA top-k keeps counters there and vocabulary-split softmax its partial results: launches that overlap spoil each
other's (FlashInfer gave top-k's counters to the stream in 0.7.4, topk.py, and softmax's to the output, sampling.cuh).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

#: The name under which FlashInfer's functions ask for scratch that the whole process shares (utils.py).
_SHARED = "_get_cache_buf"
_buffers: dict[tuple[str, torch.device, int], torch.Tensor] = {}


def per_stream(native: Callable[..., Any]) -> Callable[..., Any]:
    """`native`, FlashInfer's own code, with scratch of the current stream's; itself where it shares none."""
    function = inspect.unwrap(native)
    if not isinstance(function, FunctionType) or _SHARED not in function.__code__.co_names:
        return native
    rebound = FunctionType(
        function.__code__,
        _Globals(function.__globals__, {_SHARED: stream_buffer}),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    rebound.__kwdefaults__ = function.__kwdefaults__
    return rebound


def stream_buffer(name: str, num_bytes: int, device: torch.device, zero_init: bool = False) -> torch.Tensor:
    """`num_bytes` of scratch called `name`: the current stream's, or a captured call's own; zeroed once if so asked."""
    make = torch.zeros if zero_init else torch.empty
    if device.type != "cuda":
        return make(num_bytes, dtype=torch.uint8, device=device)
    if torch.cuda.is_current_stream_capturing():
        # From the graph's pool, and zeroed by each replay: two graphs, or two replays, may overlap.
        return make(num_bytes, dtype=torch.uint8, device=device)
    key = (name, device, torch.cuda.current_stream(device).cuda_stream)
    buffer = _buffers.get(key)
    if buffer is None or buffer.size(0) < num_bytes:
        # Launched work may still use a smaller one: the allocator keeps freed memory in the order of its stream.
        buffer = _buffers[key] = make(num_bytes, dtype=torch.uint8, device=device)
    return buffer


class _Globals(dict[str, Any]):
    """A function's globals with some names of our own; the rest is FlashInfer's module's, read through each time."""

    def __init__(self, native: dict[str, Any], own: dict[str, Any]) -> None:
        super().__init__(own)
        self.native = native

    def __missing__(self, name: str) -> Any:
        return self.native[name]

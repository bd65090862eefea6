"""Sampling a batch of 64 from a vocabulary of 128k through the facade, and through FlashInfer's own functions.

Microseconds of device time for a call (CUDA events around `CALLS` calls, so that the host is hidden), and of host time
(the calls alone, the device idle before). Seed and offset come from a generator, which each call reads and moves, or
are the caller's own numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flashinfer
import torch

import flashinfer_compat

from .measuring import Options, Row, call_time, compared, interleaved

DEVICE = torch.device("cuda:0")
BATCH, VOCABULARY = 64, 128_256
#: Calls of one measurement.
CALLS = 50


def cases() -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Function and arguments of each call, seed and offset excepted."""
    torch.manual_seed(0)
    logits = 3 * torch.randn(BATCH, VOCABULARY, device=DEVICE)
    probs = torch.softmax(logits, dim=-1)
    top_k = torch.full((BATCH,), 40, device=DEVICE, dtype=torch.int32)
    top_p, min_p = (torch.full((BATCH,), value, device=DEVICE) for value in (0.9, 0.05))
    return {
        "from logits": ("sampling_from_logits", (logits,)),
        "from probs": ("sampling_from_probs", (probs,)),
        "top-p each": ("top_p_sampling_from_probs", (probs, top_p)),
        "top-k each": ("top_k_sampling_from_probs", (probs, top_k)),
        "min-p each": ("min_p_sampling_from_probs", (probs, min_p)),
        "top-k 40, top-p each, of logits": ("top_k_top_p_sampling_from_logits", (logits, 40, top_p)),
        "top-k each, top-p each, of probs": ("top_k_top_p_sampling_from_probs", (probs, top_k, top_p)),
        "top-k each, top-p each, joint": (
            "top_k_top_p_sampling_from_probs", (probs, top_k, top_p, None, "joint"),
        ),
    }  # fmt: skip


def device_time(call: Callable[[], Any]) -> Callable[[], float]:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once() -> float:
        torch.cuda.synchronize()
        # Work that the device has first, so that the calls are queued before the first of them runs.
        torch.cuda._sleep(20_000_000)
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / CALLS * 1e3

    return once


def host_time(call: Callable[[], Any]) -> Callable[[], float]:
    return call_time(call, CALLS, before=torch.cuda.synchronize)


def measure(options: Options) -> list[Row]:
    rows: list[Row] = []
    generator = torch.Generator(DEVICE).manual_seed(1)
    draws: dict[str, dict[str, Any]] = {"generator": {"generator": generator}, "numbers": {"seed": 1, "offset": 0}}
    for case, (name, given) in cases().items():
        for source, numbers in draws.items():

            def bound(module: Any, name: str = name, given: Any = given, numbers: Any = numbers) -> Callable[[], Any]:
                function = getattr(module.sampling, name)
                return lambda: function(*given, **numbers)

            calls = {"native": bound(flashinfer), "facade": bound(flashinfer_compat)}
            for kind, timer in (("device", device_time), ("host", host_time)):
                measures = {variant: timer(call) for variant, call in calls.items()}
                taken = interleaved(measures, options.rounds(21), warm=3)
                rows += compared(f"{case}; {source}; {kind}", "µs", taken)
    return rows

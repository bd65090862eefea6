"""Sampling a batch of 64 from a vocabulary of 128k through the facade, and through FlashInfer's own functions.

Two tables: microseconds of device time for a call (CUDA events around `--calls` calls, so that the host is hidden), and
of host time (the calls alone, the device idle before). Native and facade are measured in turn. `draws` says where
seed and offset come from: a generator, which each call reads and moves, or the caller's own numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import flashinfer
import torch
from _results import Sample, interleaved, parser, ratio, report, where_on_gpu

import flashinfer_compat

DEVICE = torch.device("cuda:0")


def cases(batch: int, vocabulary: int) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Function and arguments of each call, seed and offset excepted."""
    torch.manual_seed(0)
    logits = 3 * torch.randn(batch, vocabulary, device=DEVICE)
    probs = torch.softmax(logits, dim=-1)
    top_k = torch.full((batch,), 40, device=DEVICE, dtype=torch.int32)
    top_p, min_p = (torch.full((batch,), value, device=DEVICE) for value in (0.9, 0.05))
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


def device_time(call: Callable[[], Any], calls: int) -> Callable[[], float]:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once() -> float:
        torch.cuda.synchronize()
        # Work that the device has first, so that the calls are queued before the first of them runs.
        torch.cuda._sleep(20_000_000)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / calls * 1e3

    return once


def host_time(call: Callable[[], Any], calls: int) -> Callable[[], float]:
    def once() -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - began) / calls * 1e6

    return once


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--batch", type=int, default=64)
    arguments.add_argument("--vocabulary", type=int, default=128_256)
    arguments.add_argument("--calls", type=int, default=50, help="calls of one measurement")
    arguments.add_argument("--rounds", type=int, default=21, help="measurements of each variant")
    args = arguments.parse_args()

    rows = []
    generator = torch.Generator(DEVICE).manual_seed(1)
    draws: dict[str, dict[str, Any]] = {"generator": {"generator": generator}, "numbers": {"seed": 1, "offset": 0}}
    for case, (name, given) in cases(args.batch, args.vocabulary).items():
        for source, numbers in draws.items():

            def bound(module: Any, name: str = name, given: Any = given, numbers: Any = numbers) -> Callable[[], Any]:
                function = getattr(module.sampling, name)
                return lambda: function(*given, **numbers)

            calls = {"native": bound(flashinfer), "facade": bound(flashinfer_compat)}
            taken: dict[str, dict[str, Sample]] = {}
            for kind, timer in (("device", device_time), ("host", host_time)):
                measure = {variant: timer(call, args.calls) for variant, call in calls.items()}
                interleaved(measure, 3)  # warm
                taken[kind] = interleaved(measure, args.rounds)
            device, host = taken["device"], taken["host"]
            difference = f"{host['facade'].median - host['native'].median:+.1f}"
            times = (device["native"], device["facade"], ratio(device["facade"], device["native"]))
            rows.append([case, source, *times, host["native"], host["facade"], difference])
    header = (
        "call", "draws", "device µs, native", "facade", "ratio", "host µs, native", "facade", "difference",
    )  # fmt: skip
    report(where_on_gpu() | {"batch": args.batch, "vocabulary": args.vocabulary}, header, rows, args.json)


if __name__ == "__main__":
    main()

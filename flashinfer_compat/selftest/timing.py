"""How long an eager call takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

_WARM_UP, _REPEATS = 3, 21


def medians(calls: Mapping[str, Callable[[], Any]], device: torch.device) -> dict[str, float]:
    """Microseconds of each call: on a GPU the median between two events around it, else one look at the clock."""
    return _by_events(calls) if device.type == "cuda" else {name: _by_clock(call) for name, call in calls.items()}


def _by_clock(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e6


def _by_events(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """The calls take turns, so that drift of the machine meets all alike."""
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for turn in range(_WARM_UP + _REPEATS):
        for name, call in calls.items():
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            call()
            ended.record()
            if turn >= _WARM_UP:
                events[name].append((began, ended))
    torch.cuda.synchronize()
    return {name: median(one.elapsed_time(other) * 1e3 for one, other in pairs) for name, pairs in events.items()}

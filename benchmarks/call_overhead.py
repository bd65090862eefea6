"""What a call through the facade costs, in nanoseconds, against a direct call. Needs no GPU, PyTorch or FlashInfer.

A trivial function of six parameters is called in these ways, the name bound once before:

- direct: the function itself. A name that the release already has in the contract's shape *is* this;
- adapted: what an adapter's line makes of it, a function with explicit parameters and one keyword more (`Refuse`);
- cached *args wrapper: what many projects write instead, a functools.cache'd getter and ``get()(*args, **kwargs)``.

And two reads that come before a call where the name is not bound once: an attribute of a plain module, and one of a
module of the facade. The time of an empty loop is taken off. CPU time.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from flashinfer_compat.bridges.rules import Refuse
from flashinfer_compat.bridges.signatures import adapt
from flashinfer_compat.namespace import MirroredModule

from .measuring import Options, Row, compared, interleaved

#: Calls of one measurement.
CALLS = 100_000
CALL = "(q, k, v, scale, causal=True, out=out)"


def attention(q: Any, k: Any, v: Any, sm_scale: Any = None, causal: Any = False, out: Any = None) -> Any:
    """Stands for FlashInfer's function."""
    return out


RULE = Refuse(
    adds={"variable_window": None}, since="0.7.4", instead="Leave it out.", note="a keyword of a later release"
)


@cache
def get_attention() -> Callable[..., Any]:
    return attention


def wrapped(*args: Any, **kwargs: Any) -> Any:
    return get_attention()(*args, **kwargs)


def variants() -> dict[str, tuple[str, dict[str, Any]]]:
    """Statement and names of each variant."""
    plain, mirrored = ModuleType("plain"), MirroredModule("flashinfer_compat.mirrored")
    for module in (plain, mirrored):
        module.__dict__["attention"] = attention
    adapted = adapt(attention, [RULE], name="prefill.attention", release="0.7.3")
    return {
        "direct": (f"call{CALL}", {"call": attention}),
        "adapted": (f"call{CALL}", {"call": adapted}),
        "cached *args wrapper": (f"call{CALL}", {"call": wrapped}),
        "plain module's attribute, then direct": (f"module.attention{CALL}", {"module": plain}),
        "facade module's attribute, then direct": (f"module.attention{CALL}", {"module": mirrored}),
    }


def call_time(statement: str, names: dict[str, Any]) -> Callable[[], float]:
    values = dict.fromkeys(("q", "k", "v", "scale", "out"), object())
    timer, empty = (timeit.Timer(code, timer=time.process_time, globals=values | names) for code in (statement, "pass"))
    return lambda: (timer.timeit(CALLS) - empty.timeit(CALLS)) / CALLS * 1e9


def measure(options: Options) -> list[Row]:
    measures = {name: call_time(*variant) for name, variant in variants().items()}
    return compared("call", "ns", interleaved(measures, options.rounds(31), warm=2))

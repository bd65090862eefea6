"""The benchmarks, what each needs, and whether this machine has it."""

from __future__ import annotations

import importlib
from enum import Enum
from importlib.util import find_spec

from . import audit, engines
from .measuring import Options, Row


class Need(Enum):
    FLASHINFER = "FlashInfer"
    GPU = "a GPU"
    ENGINES = "the sources of published engines"


#: A benchmark is the module of its name; it is imported only where that which it needs is there.
BENCHMARKS: dict[str, tuple[Need, ...]] = {
    "verify_hint": (Need.FLASHINFER, Need.GPU),
    "plan_time": (Need.FLASHINFER, Need.GPU),
    "sampling": (Need.FLASHINFER, Need.GPU),
    "moe_dispatch": (Need.FLASHINFER, Need.GPU),
    "plan_cpu": (Need.FLASHINFER,),
    "call_overhead": (),
    "import_time": (Need.FLASHINFER,),
    "audit_speed": (),
    "audit": (Need.ENGINES,),
}


def measure(name: str, options: Options) -> list[Row]:
    rows: list[Row] = importlib.import_module(f"{__package__}.{name}").measure(options)
    return rows


def why_not(name: str, options: Options) -> str:
    """Why a benchmark cannot run here; empty if it can."""
    return next(filter(None, (missing(need, options) for need in BENCHMARKS[name])), "")


def missing(need: Need, options: Options) -> str:
    """What is missing; empty if nothing is."""
    if need is Need.FLASHINFER and find_spec("flashinfer") is None:
        return f"needs {need.value}"
    if need is Need.GPU and not has_gpu():
        return f"needs {need.value}"
    if need is Need.ENGINES and not options.fetch:
        unfetched = [engine for engine in audit.expected() if not engines.source_folder(engine).exists()]
        if unfetched:
            return f"needs {need.value}; --fetch gets {len(unfetched)} of them from the package index"
    return ""


def has_gpu() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())

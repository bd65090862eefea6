"""Which of FlashInfer's names the reference has, and the facade's objects for them."""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from types import ModuleType
from typing import Any

from ..errors import CompatWarning, FeatureUnavailable
from ..selection import NEWEST
from ..support import MISSING
from ..surfaces import store
from ..surfaces.model import Class, Found, Function, Module

#: FlashInfer's modules that have names here, each a module of this package.
MODULES = ("cascade", "decode", "mla", "moe_ep", "norm", "page", "prefill", "quantization", "rope", "sampling", "topk")
#: Of these the classes are the facade's own, made by the lines of the newest release already.
_MADE_BY_THE_LINES = ("moe_ep",)
#: Names of the facade's own that need no FlashInfer.
ADDED = frozenset({
    "mla.allocate_multi_ctas_kv_counters", "mla.multi_ctas_kv_counter_bytes", "prefill.prefill_chunk_align",
    "prefill.use_deterministic_backend", "sampling.sample_with_row_seeds",
})  # fmt: skip


def find(dotted: str) -> Any:
    """The reference's object for a dotted name without ``flashinfer.``, under any name that FlashInfer exports it by.

    `MISSING` where it has none.
    """
    place = _place(dotted)
    return MISSING if place is None else _bound(*place)


def names(module: str) -> list[str]:
    """The names that the reference has in FlashInfer's `module`, ``""`` for the package."""
    defined = store.open_surface(NEWEST).modules.get(f"flashinfer.{module}" if module else "flashinfer")
    listed = {*(defined.symbols if defined is not None else ()), *(_own(module) if module in MODULES else ())}
    return sorted(name for name in listed if _place(f"{module}.{name}" if module else name) is not None)


def definition(dotted: str) -> Found | None:
    """Where the newest release defines a name, None where it has none of it."""
    return store.open_surface(NEWEST).find(dotted)


def is_module(dotted: str) -> bool:
    """Whether the newest release has such a module."""
    found = definition(dotted)
    return found is not None and isinstance(found.symbol, Module)


def absent(dotted: str) -> FeatureUnavailable:
    """What to raise for a name that the reference has not."""
    if definition(dotted) is None:
        told = f"FlashInfer {NEWEST} has no flashinfer.{dotted}, and the reference in plain PyTorch has none "
        if dotted.startswith("comm.") and hasattr(_expert_parallel(), dotted.rpartition(".")[2]):
            return FeatureUnavailable(f"{told}under that name: import it from {_expert_parallel().__name__}.")
        return FeatureUnavailable(f"{told}either.")
    return FeatureUnavailable(
        f"flashinfer.{dotted}: FlashInfer {NEWEST} has it, the reference in plain PyTorch has not. Run on FlashInfer: "
        f"pip install flashinfer-python=={NEWEST}"
    )


def _expert_parallel() -> ModuleType:
    """Where `comm`'s classes of earlier releases are, which are made for a process group and not for a device."""
    return importlib.import_module(f"{__package__}.expert_parallel")


def _place(dotted: str) -> tuple[str, str] | None:
    """The module of this package that has a name, and its name there."""
    module, _, name = dotted.rpartition(".")
    if module not in MODULES or name not in _own(module):
        defined = definition(dotted)
        if defined is None or not isinstance(defined.symbol, (Function, Class)):
            return None
        # FlashInfer defines some names deeper (mla._batch_mla._wrapper) than where it exports them.
        module, name = f"{defined.module}.".split(".")[1], defined.path
    return (module, name) if module in MODULES and name in _own(module) else None


@cache
def _bound(module: str, name: str) -> Any:
    """The reference's object with the facade's own checks of its arguments."""
    warn_if_not_needed()
    from ..adapters import RELEASES
    from ..bridges.classes import derive
    from ..bridges.rules import Check, KeywordOnly, Rule, SpellOut
    from ..bridges.signatures import adapt

    dotted, adapter = f"{module}.{name}", RELEASES[-1].adapter
    if dotted in ADDED:
        return adapter.bind(dotted, MISSING, find)
    value = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    if module in _MADE_BY_THE_LINES:
        return value
    rules: dict[str, list[Rule]] = {
        method: [line for line in lines if isinstance(line, (Check, KeywordOnly, SpellOut))]
        for method, lines in adapter.names.get(dotted, {}).items()
    }
    if isinstance(value, type):
        methods = {method: found for method, found in rules.items() if method and found}
        return derive(value, (), methods, name=dotted, release="reference", facade_object=find)
    return adapt(value, rules[""], name=dotted, release="reference") if rules.get("") else value


@cache
def _own(module: str) -> frozenset[str]:
    """The public functions and classes of a module of the reference."""
    held = vars(importlib.import_module(f"{__package__}.{module}"))
    listed = held.get("__all__") or [
        name
        for name, value in held.items()
        if not name.startswith("_") and getattr(value, "__module__", "") == f"{__package__}.{module}"
    ]
    return frozenset(listed) | {dotted.rpartition(".")[2] for dotted in ADDED if dotted.startswith(f"{module}.")}


@cache
def warn_if_not_needed() -> None:
    """Say once that the reference is in FlashInfer's place where FlashInfer could run."""
    import torch

    from ..namespace import selected

    if selected.installed is not None and torch.cuda.is_available():
        warnings.warn(
            f"the reference in plain PyTorch is in the place of FlashInfer {selected.installed}, as asked for, and "
            "there is a GPU: it is slow. Unset FLASHINFER_COMPAT_BACKEND, or do not call use_reference().",
            CompatWarning,
            stacklevel=2,
        )

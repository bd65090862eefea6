"""The recorded surface against what ``inspect`` sees in the installed FlashInfer; every difference is explained."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from flashinfer_compat import selection
from flashinfer_compat.surfaces import names, store
from flashinfer_compat.surfaces.model import Alias, Class, Constant, Found, Function, Parameter, Surface, json_line
from flashinfer_compat.surfaces.python_source import parsed, read_module

INSTALLED = selection.installed_version()
pytestmark = pytest.mark.skipif(
    INSTALLED not in store.RECORDED or selection.package_directory() is None,
    reason="compares the installed FlashInfer with its recorded surface",
)

#: A value that the record writes out; flags tell what a machine has, and are not compared.
LITERAL = re.compile(r"-?\d+|'[^']*'")

#: What Python's own classes add to theirs: Protocol, ABC, NamedTuple, torch.autograd.Function.
MACHINERY = frozenset(
    {"_abc_impl", "_is_protocol", "_is_runtime_protocol", "_backward_cls"}
    | {"_fields", "_field_defaults", "_make", "_replace", "_asdict"}
)

_CUTE_DSL = "FlashInfer leaves it out where CuTe DSL cannot be used"
#: What inspect sees otherwise than the source says, and why. A name covers what is below it.
EXPLAINED = {
    **dict.fromkeys(
        [
            f"flashinfer.{holder}{name}"
            for holder in ("", "fused_moe.")
            for name in (
                "B12xMoEWrapper",
                "CuteDslBf16MoEWrapper",
                "CuteDslMoEWrapper",
                "CuteDslMxfp8Mxfp4MoEWrapper",
                "b12x_fused_moe",
                "cute_dsl_fused_moe",
                "cute_dsl_fused_moe_bf16",
                "cute_dsl_fused_moe_mxfp8_mxfp4",
                "cute_dsl_fused_moe_nvfp4",
            )
        ],
        _CUTE_DSL,
    ),
    **dict.fromkeys(
        [
            "flashinfer.chunk_gated_delta_rule",
            "flashinfer.chunk_gated_delta_rule_paged",
            "flashinfer.gated_delta_rule_decode_paged",
            "flashinfer.gdn_paged_decode_slots",
            "flashinfer.gdn_paged_prefill_slots",
        ],
        "imported behind CuTe DSL's names in flashinfer/__init__.py, and left out with them",
    ),
    "flashinfer.gemm.make_bmm_bf16_tune_cache": _CUTE_DSL,
    "flashinfer.kda_kernels._dsl_arch_ok": _CUTE_DSL,
    "flashinfer.gemm.gemm_base.error_msg": "bound while an import error is handled (gemm/gemm_base.py)",
    "flashinfer.gemm.gemm_base.is_lib_missing": "bound while an import error is handled (gemm/gemm_base.py)",
    "flashinfer.trace_apply": "imported if FLASHINFER_TRACE_APPLY is set",
    "flashinfer.parallel_attention.ParallelAttention.run": "its decorators' wrappers have their own signature",
    "flashinfer.quantization.fp4_quantization._fp4_quantize_custom_op": "torch.library's object, of any signature",
}


@pytest.fixture(scope="module")
def surface() -> Surface:
    return store.open_surface(INSTALLED or "")


def modules(surface: Surface) -> Iterator[tuple[str, ModuleType]]:
    """FlashInfer's modules with public names, those that this machine can import."""
    for name in sorted({public.rpartition(".")[0] for public in names.public_names(surface)}):
        if importable(name):
            yield name, importlib.import_module(name)


def importable(module: str) -> bool:
    """Whether the third packages that a module needs are there: what FlashInfer leaves out without them is recorded."""
    try:
        importlib.import_module(module)
    except (ImportError, RuntimeError, OSError):
        return False
    return True


def parameters(function: Any) -> list[tuple[str, int, bool]] | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return [(one.name, int(one.kind), one.default is not one.empty) for one in signature.parameters.values()]


def recorded(listed: tuple[Parameter, ...]) -> list[tuple[str, int, bool]]:
    return [(one.name, int(one.kind), one.default is not None) for one in listed]


def differences(surface: Surface) -> Iterator[tuple[str, str]]:
    for name, module in modules(surface):
        for bound, symbol in surface.modules[name].symbols.items():
            dotted = f"{name}.{bound}"
            try:
                native = getattr(module, bound, dataclasses.MISSING)
            except (ImportError, RuntimeError):  # a lazy name whose third package is not installed
                continue
            found = surface.find(dotted)
            if native is dataclasses.MISSING:
                if found is None or importable(found.module):
                    yield dotted, "recorded, not there"
            elif found is not None:
                yield from compared(surface, dotted, found, native)
            elif not isinstance(symbol, Alias):
                yield dotted, "recorded, not found in the record"
        for bound, native in vars(module).items():
            home = getattr(native, "__module__", None) or ""
            own = inspect.isfunction(native) or inspect.isclass(native)
            if own and home.startswith("flashinfer") and bound not in surface.modules[name].symbols:
                yield f"{name}.{bound}", "there, not recorded"


def compared(surface: Surface, dotted: str, found: Found, native: Any) -> Iterator[tuple[str, str]]:
    symbol = found.symbol
    if isinstance(symbol, Function) and callable(native) and not symbol.is_property:
        seen = parameters(native)
        if seen is not None and seen != recorded(symbol.parameters):
            yield dotted, f"signature {seen}"
    elif isinstance(symbol, Class):
        if not inspect.isclass(native):
            yield dotted, f"a {type(native).__name__}"
            return
        for member, native_member in vars(native).items():
            if member.startswith("__") or member in MACHINERY or (member[0] == "_" and member[-1] == "_"):
                continue
            held = surface.member(found, member)
            if held is None and not isinstance(native_member, property) and not inspect.isdatadescriptor(native_member):
                yield f"{dotted}.{member}", "there, not recorded"
            elif held is not None and isinstance(held.symbol, Function) and inspect.isfunction(native_member):
                seen = parameters(native_member)
                if seen != recorded(held.symbol.parameters):
                    yield f"{dotted}.{member}", f"signature {seen}"
        for member, held_symbol in symbol.members.items():
            if not hasattr(native, member) and isinstance(held_symbol, (Function, Class)):
                yield f"{dotted}.{member}", "recorded, not there"
        if dataclasses.is_dataclass(native) and "__init__" not in symbol.members:
            fields = [one.name for one in dataclasses.fields(native) if one.init]
            constructor = [one.name for one in surface.constructor(found) or ()]
            if set(fields) != set(constructor):
                yield dotted, f"fields {sorted(set(fields) ^ set(constructor))}"
        if issubclass(native, enum.Enum):
            members = set(native.__members__)
            if members != set(symbol.enum_members):
                yield dotted, f"members {sorted(members ^ set(symbol.enum_members))}"
    elif isinstance(symbol, Constant) and type(native) in (int, str):
        written = LITERAL.fullmatch(symbol.value or "")
        if written and repr(native) != written[0]:
            yield dotted, f"value {native!r}"


def explained(dotted: str) -> bool:
    return any(dotted == name or dotted.startswith(f"{name}.") for name in EXPLAINED)


def test_inspect_sees_what_is_recorded(surface: Surface) -> None:
    unexplained = [(dotted, how) for dotted, how in differences(surface) if not explained(dotted)]
    assert unexplained == []


@pytest.mark.parametrize("name", ["prefill", "sampling", "topk", "page", "utils", "rope", "autotuner.autotuner"])
def test_reading_the_installed_source_again_gives_the_recorded_line(surface: Surface, name: str) -> None:
    directory = selection.package_directory()
    assert directory is not None
    source = (directory / f"{name.replace('.', '/')}.py").read_bytes()
    module = read_module(f"flashinfer.{name}", parsed(source), source, package=False)
    assert json_line(module.encoded()) == surface.lines[f"flashinfer.{name}"]

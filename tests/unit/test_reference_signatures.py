"""The reference has the parameters of the newest recorded release: names, order, kinds, defaults."""

from __future__ import annotations

import importlib
import inspect
import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the reference is written in PyTorch")

from flashinfer_compat import outcomes  # noqa: E402
from flashinfer_compat.adapters import RELEASES  # noqa: E402
from flashinfer_compat.adapters.model import split  # noqa: E402
from flashinfer_compat.bridges.rules import KeywordOnly  # noqa: E402
from flashinfer_compat.reference import lookup  # noqa: E402
from flashinfer_compat.selection import NEWEST  # noqa: E402
from flashinfer_compat.surfaces import store  # noqa: E402

SURFACE = store.open_surface(NEWEST)
#: Of the facade's own making: FlashInfer has no such names.
FACADES_OWN = {*lookup.ADDED, "prefill.fast_prefill_plan"}
#: What FlashInfer makes by functools.partial, whose parameters no surface records.
PARTIAL = {"prefill.single_prefill_with_kv_cache_return_lse"}
#: Dataclasses, whose constructors no surface records; the contract's dispatch takes the older name of the size too.
DATACLASSES = {"moe_ep.MoEEpCommParams", "moe_ep.MoEEpDispatchResult", "moe_ep.NVLinkOneSidedConfig"}
OLDER_NAMES = {"moe_ep.NVLinkOneSidedAlltoAll.dispatch": ["max_tokens_per_rank"]}


def reference_names() -> list[str]:
    return [f"{module}.{name}" for module in lookup.MODULES for name in sorted(lookup._own(module))]


def methods_of(name: str) -> list[str]:
    """The methods that the reference itself writes for a class, its constructor included; none of a function."""
    found = lookup.find(name)
    if not isinstance(found, type):
        return []
    written = [base for base in found.__mro__ if base.__module__.startswith("flashinfer_compat.reference")]
    members = dict(itertools.chain.from_iterable(vars(base).items() for base in reversed(written)))
    return [
        method
        for method, value in members.items()
        if (inspect.isfunction(value) or isinstance(value, classmethod))
        and (not method.startswith("_") or method in ("__init__", "_plan_impl"))
    ]


KEYS = [
    f"{name}.{method}" if method else name
    for name in reference_names()
    if name not in FACADES_OWN | PARTIAL | DATACLASSES
    for method in (methods_of(name) or [""])
    # FlashInfer binds these without a definition of their own (begin_forward = plan).
    if method not in ("begin_forward", "end_forward", "forward") or outcomes.parameters(SURFACE, f"{name}.{method}")
]


def test_there_is_something_to_compare() -> None:
    assert len(KEYS) > 60
    assert "decode.BatchDecodeWithPagedKVCacheWrapper._plan_impl" in KEYS


@pytest.mark.parametrize("key", KEYS)
def test_parameters(key: str) -> None:
    recorded = outcomes.parameters(SURFACE, key)
    assert recorded is not None, f"FlashInfer {NEWEST} has no {key}"
    own = inspect.signature(written(key)).parameters
    assert list(own) == [*recorded, *OLDER_NAMES.get(key, [])]
    for name in recorded:
        parameter = own[name]
        assert parameter.kind == recorded[name].kind, name
        assert same_default(parameter.default, recorded[name].default), name


def written(key: str) -> Any:
    """What the source says, without the facade's checks around it."""
    name, method = split(key)
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(f"flashinfer_compat.reference.{module}"), attribute)
    if method:
        value = inspect.getattr_static(value, method)
    return value.__func__ if isinstance(value, classmethod) else value


def same_default(own: Any, recorded: Any) -> bool:
    if isinstance(recorded, str) and recorded.startswith("TopKTieBreak."):
        return {"TopKTieBreak.NONE": 0}[recorded] == own
    if isinstance(recorded, str) and recorded.startswith("field(default=None,"):
        return own is None
    return own is recorded or own == recorded


@pytest.mark.parametrize("name", sorted(set(reference_names()) - FACADES_OWN))
def test_name(name: str) -> None:
    assert lookup.definition(name) is not None


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (key, line)
        for key, lines in RELEASES[-1].adapter.lines.items()
        for line in lines
        if isinstance(line, KeywordOnly) and key in KEYS
    ],
)
def test_what_the_facade_takes_by_keyword_alone(key: str, line: KeywordOnly) -> None:
    name, method = split(key)
    bound = getattr(lookup.find(name), method) if method else lookup.find(name)
    parameters = inspect.signature(bound).parameters
    assert {parameters[one].kind for one in line.parameters} == {inspect.Parameter.KEYWORD_ONLY}


def test_decode_plan_takes_flashinfers_keywords() -> None:
    wrapper = lookup.find("decode.BatchDecodeWithPagedKVCacheWrapper")
    spelled = inspect.signature(wrapper.plan).parameters
    recorded = outcomes.parameters(SURFACE, "decode.BatchDecodeWithPagedKVCacheWrapper._plan_impl")
    assert recorded is not None
    assert set(recorded) <= set(spelled)

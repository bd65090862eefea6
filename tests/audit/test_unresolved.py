"""What cannot be resolved is listed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flashinfer_compat.audit.uses import Audit


@pytest.mark.parametrize(
    ("source", "symbol"),
    [
        ("from flashinfer.comm import *", "flashinfer.comm"),
        ("import importlib\ndef f(name):\n    return importlib.import_module(f'flashinfer.{name}')", "flashinfer"),
        ("import importlib\ndef f(name):\n    return importlib.import_module('flashinfer.' + name)", "flashinfer"),
        ("import flashinfer.comm as c\ndef f(name):\n    return getattr(c, name)", "flashinfer.comm"),
        (
            "from flashinfer.fused_moe import cutlass_fused_moe\ndef f(**kw):\n    cutlass_fused_moe(1, **kw)",
            "flashinfer.fused_moe.cutlass_fused_moe",
        ),
        ("def f(self, *args):\n    self._cached_module.plan(*args)", "wrapper._cached_module.plan"),
    ],
)
def test_listed(audit: Callable[..., Audit], source: str, symbol: str) -> None:
    if "import flashinfer" not in source and "flashinfer." not in source:
        source = f"import flashinfer\n{source}"
    checked = audit(source)
    assert list(checked.found()) == []
    assert [one.symbol for one in checked.unresolved] == [symbol]


@pytest.mark.parametrize(
    "source",
    [
        "from other import *",
        "import flashinfer\ndef f(name):\n    return getattr(name, 'rmsnorm')",
        # The same on every release, whatever is passed.
        "from flashinfer import merge_state\ndef f(*tensors):\n    return merge_state(*tensors)",
        "import importlib\nimportlib.import_module('flashinfer.norm')",
    ],
)
def test_not_listed(audit: Callable[..., Audit], source: str) -> None:
    checked = audit(source)
    assert list(checked.found()) == []
    assert checked.unresolved == []

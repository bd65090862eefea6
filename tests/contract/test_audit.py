"""What the audit says of the installed release, held against what the release does."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from flashinfer_compat.audit.audited import audit
from flashinfer_compat.audit.findings import Effect

PINNED = "0.7.2.post1"
NAMES = [
    "from flashinfer.comm import MoeAlltoAll",
    "from flashinfer.comm.trtllm_moe_alltoall import moe_a2a_get_workspace_size_per_rank",
    "from flashinfer.comm.trtllm_alltoall import MnnvlMoe",
    "from flashinfer.comm.mnnvl import MnnvlMemory",
    "from flashinfer.moe_ep import create_communication",
    "from flashinfer.norm import gated_residual_rmsnorm",
    "import flashinfer.gemm.gemm_base\nflashinfer.gemm.gemm_base._get_cache_buf",
    "import flashinfer\nflashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper.plan",
]
#: The class, and the keyword that a call of its method passes.
KEYWORDS = [
    ("flashinfer.moe_ep", "NVLinkOneSidedAlltoAll", "dispatch", "max_tokens_per_rank"),
    ("flashinfer.prefill", "BatchPrefillWithPagedKVCacheWrapper", "plan", "uniform_q_len"),
]


@pytest.fixture
def effect(tmp_path: Path, release: str) -> Any:
    if release == "0.7.3":
        pytest.skip("0.7.3 is presented on the code of 0.7.4")

    def audited(source: str) -> Effect:
        """The worst that the audit says of the installed release."""
        (tmp_path / "engine.py").write_text(source)
        found = audit([tmp_path], PINNED, (release,)).findings
        return max((one.outcomes[release].effect for one in found), default=Effect.WORKS)

    return audited


@pytest.mark.parametrize("source", NAMES)
def test_names(effect: Any, source: str) -> None:
    try:
        exec(source, {})
    except (ImportError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("flashinfer"):
            pytest.skip(f"needs {error.name}")
        assert effect(source) is Effect.BREAKS
    else:
        assert effect(source) is Effect.WORKS


@pytest.mark.parametrize(("module", "name", "method", "keyword"), KEYWORDS)
def test_keywords(effect: Any, module: str, name: str, method: str, keyword: str) -> None:
    try:
        namespace: dict[str, Any] = {}
        exec(f"from {module} import {name}", namespace)
    except ImportError:
        pytest.skip(f"this release has no {name}")
    parameters = inspect.signature(getattr(namespace[name], method)).parameters
    required = [one for one in list(parameters.values())[1:] if one.default is one.empty]
    arguments = ", ".join(["0"] * len(required))
    source = f"from {module} import {name}\ndef f(held: {name}):\n    held.{method}({arguments}, {keyword}=1)\n"
    assert effect(source) is (Effect.WORKS if keyword in parameters else Effect.BREAKS)

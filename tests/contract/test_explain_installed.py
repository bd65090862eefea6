"""Errors provoked in the installed release, explained: recognised is what FlashInfer really prints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import flashinfer
import pytest
from flashinfer.prefill import BatchPrefillWithPagedKVCacheWrapper

from flashinfer_compat import selection
from flashinfer_compat.doctor.explain import explained

PARTS = (None,) * 9


def unknown_keyword() -> None:
    BatchPrefillWithPagedKVCacheWrapper.plan(None, *PARTS, no_such_keyword=1)


def missing_argument() -> None:
    BatchPrefillWithPagedKVCacheWrapper.plan(None, None)


def too_many() -> None:
    flashinfer.norm.rmsnorm(*range(50))


def missing_import() -> None:
    from flashinfer.comm import NoSuchName  # noqa: F401


def missing_attribute() -> None:
    flashinfer.prefill.no_such_name  # noqa: B018


def missing_member() -> None:
    BatchPrefillWithPagedKVCacheWrapper.no_such_method  # noqa: B018


def missing_module() -> None:
    import flashinfer.no_such_module  # noqa: F401


def argument_count() -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    tvm_ffi.get_global_func("ffi.String")(1, 2, 3)


@pytest.mark.parametrize(
    "provoked",
    [
        unknown_keyword,
        missing_argument,
        too_many,
        missing_import,
        missing_attribute,
        missing_member,
        missing_module,
        argument_count,
    ],
)
def test_recognised(provoked: Callable[[], None]) -> None:
    with pytest.raises((TypeError, ImportError, AttributeError)) as raised:
        provoked()
    found = explained(f"{raised.type.__name__}: {raised.value}")
    assert found
    assert all(one.cause and one.releases and one.remedy for one in found)


@pytest.mark.parametrize("keyword", ["uniform_q_len", "max_sequence_kv", "use_token_head_sf"])
def test_the_installed_release_is_told_rightly(keyword: str) -> None:
    with pytest.raises((TypeError, AttributeError)) as raised:
        BatchPrefillWithPagedKVCacheWrapper.plan(None, *PARTS, **{keyword: 1})
    found = explained(str(raised.value))
    installed = (selection.installed_version() or "").partition("+")[0]
    if found:
        assert installed not in found[0].releases.partition(";")[0].split("by ")[1].split(", ")
    else:
        assert "unexpected keyword" not in str(raised.value)


def test_mismatched_cubin_package(tmp_path: Path) -> None:
    package = tmp_path / "flashinfer_cubin"
    package.mkdir()
    (package / "__init__.py").write_text('__version__ = "0.0.1"\n', encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environ.pop("FLASHINFER_DISABLE_VERSION_CHECK", None)
    code = "import logging; logging.basicConfig(); import flashinfer.jit.env"
    result = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    found = [one for one in explained(result.stderr) if "flashinfer-cubin 0.0.1" in one.cause]
    assert found, result.stderr[-500:]
    assert found[0].remedy.startswith(f"pip install flashinfer-cubin=={flashinfer.__version__}")
    # The first release refuses, later ones warn, as the explanation says.
    assert (result.returncode != 0) is (selection.installed_version() == "0.7.1")

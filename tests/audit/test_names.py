"""Imports and attributes: missing, guarded, replaced, never reached."""

from __future__ import annotations

import pytest

from .conftest import Audited, told

GONE = {"0.7.3": "breaks", "0.7.4": "breaks"}
OFF = {"0.7.3": "off", "0.7.4": "off"}


@pytest.mark.parametrize(
    ("source", "symbol", "outcomes"),
    [
        ("from flashinfer.comm import MoeAlltoAll", "comm.MoeAlltoAll", GONE),
        ("import flashinfer.comm.trtllm_moe_alltoall as a2a", "comm.trtllm_moe_alltoall", GONE),
        ("import flashinfer.comm as c\nc.MoeAlltoAll(1)", "comm.MoeAlltoAll", GONE),
        ("import importlib\nc = importlib.import_module('flashinfer.comm')\nc.MoeAlltoAll", "comm.MoeAlltoAll", GONE),
        (
            "lazy = helper('flashinfer.comm', 'MoeAlltoAll')",
            "comm.MoeAlltoAll",
            {"0.7.3": "later", "0.7.4": "later"},
        ),
        (
            """
            try:
                from flashinfer.comm import MoeAlltoAll
            except ImportError:
                MoeAlltoAll = None
            """,
            "comm.MoeAlltoAll",
            OFF,
        ),
        (
            """
            try:
                from flashinfer.comm import MoeAlltoAll
            except ImportError:
                raise
            """,
            "comm.MoeAlltoAll",
            GONE,
        ),
        (
            """
            try:
                from flashinfer.comm import MoeAlltoAll
            except ImportError:
                from flashinfer.moe_ep import create_communication as MoeAlltoAll
            """,
            "comm.MoeAlltoAll",
            {"0.7.3": "alternative", "0.7.4": "alternative"},
        ),
        (
            """
            try:
                from flashinfer.comm import MoeAlltoAll
            except ImportError:
                pass
            dispatcher = MoeAlltoAll
            """,
            "comm.MoeAlltoAll",
            {"0.7.3": "later", "0.7.4": "later"},
        ),
        (
            """
            try:
                import flashinfer.comm as comm
            except ValueError:
                comm = None
            comm.MoeAlltoAll
            """,
            "comm.MoeAlltoAll",
            GONE,
        ),
    ],
)
def test_a_missing_name(audited: Audited, source: str, symbol: str, outcomes: dict[str, str]) -> None:
    assert told(audited(source)) == [("FIC001", symbol, outcomes)]


@pytest.mark.parametrize(
    "source",
    [
        "from flashinfer import rmsnorm",
        "import flashinfer\nflashinfer.norm.rmsnorm",
        "import other\nother.MoeAlltoAll",
        "text = 'flashinfer.comm.MoeAlltoAll'",
        """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from flashinfer.comm import MoeAlltoAll
        """,
        """
        import flashinfer
        from packaging.version import Version
        if Version(flashinfer.__version__) < Version("0.7.3"):
            from flashinfer.comm import MoeAlltoAll
        """,
        """
        try:
            from flashinfer.comm import MoeAlltoAll
            HAS = True
        except ImportError:
            HAS = False
        if HAS:
            import flashinfer.comm.trtllm_moe_alltoall
        """,
    ],
)
def test_what_never_breaks(audited: Audited, source: str) -> None:
    assert [one for one in told(audited(source)) if "breaks" in one[2].values() or "later" in one[2].values()] == []


@pytest.mark.parametrize(
    ("source", "symbol", "effect"),
    [
        ("import flashinfer.comm as c\nHAS = hasattr(c, 'MoeAlltoAll')", "comm.MoeAlltoAll", "off"),
        (
            "from importlib.util import find_spec\nHAS = find_spec('flashinfer.comm.trtllm_moe_alltoall') is not None",
            "comm.trtllm_moe_alltoall",
            "off",
        ),
        (
            """
            import flashinfer.comm as c
            if hasattr(c, "MoeAlltoAll"):
                dispatch = c.MoeAlltoAll
            else:
                dispatch = other(1)
            """,
            "comm.MoeAlltoAll",
            "alternative",
        ),
        ("NAMES = [('flashinfer.comm', 'Mapping'), ('flashinfer.comm', 'MoeAlltoAll')]", "comm.MoeAlltoAll", "off"),
    ],
)
def test_a_question(audited: Audited, source: str, symbol: str, effect: str) -> None:
    assert told(audited(source)) == [("FIC002", symbol, {"0.7.3": effect, "0.7.4": effect})]


def test_names_handed_on_inside_the_engine(audited: Audited) -> None:
    sources = {
        "lazy.py": "import flashinfer.comm\ncomm = flashinfer.comm\n",
        "__init__.py": "from .lazy import comm\n",
        "far/user.py": "from engine import comm\n\ndef f():\n    return comm.MoeAlltoAll\n",
    }
    (finding,) = audited(sources)
    assert (finding.path.rpartition("/")[2], finding.line, finding.symbol) == (
        "user.py",
        4,
        "flashinfer.comm.MoeAlltoAll",
    )


def test_a_patch_onto_a_name_that_is_gone(audited: Audited) -> None:
    found = told(audited("import flashinfer.comm as c\nc.MoeAlltoAll = None"))
    assert found == [("FIC202", "comm.MoeAlltoAll", OFF)]

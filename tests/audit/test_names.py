"""Imports and attributes: missing, guarded, replaced, never reached."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flashinfer_compat.audit.uses import Audit

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


def test_every_name_that_a_try_statement_lacks_is_told(audited: Audited) -> None:
    source = """
    try:
        from flashinfer.comm import MoeAlltoAll
        from flashinfer.comm import moe_a2a_get_workspace_size_per_rank
        HAS = True
    except ImportError:
        HAS = False
    """
    assert told(audited(source)) == [
        ("FIC001", "comm.MoeAlltoAll", OFF),
        ("FIC001", "comm.moe_a2a_get_workspace_size_per_rank", OFF),
    ]


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


def test_a_global_that_a_function_sets(audited: Audited) -> None:
    source = """
    _comm = None

    def load():
        global _comm
        import flashinfer.comm
        _comm = flashinfer.comm

    def use():
        return _comm.MoeAlltoAll
    """
    assert told(audited(source)) == [("FIC001", "comm.MoeAlltoAll", GONE)]


def test_a_name_that_a_class_inherits(audited: Audited) -> None:
    sources = {
        "base.py": """
        from flashinfer.moe_ep import NVLinkOneSidedAlltoAll

        class Base(NVLinkOneSidedAlltoAll):
            pass
        """,
        "derived.py": """
        from .base import Base

        class Engine(Base):
            def step(self):
                return self.dispatch(1, 2, 3, max_tokens_per_rank=4)
        """,
    }
    assert told(audited(sources)) == [
        ("FIC001", "moe_ep.NVLinkOneSidedAlltoAll", {"0.7.1": "breaks"}),
        ("FIC101", "moe_ep.NVLinkOneSidedAlltoAll.dispatch", GONE),
    ]


def test_functions_that_say_nothing_of_flashinfer_stay_unread(audit: Callable[..., Audit]) -> None:
    source = """
    import flashinfer

    def norm(x, weight):
        return flashinfer.rmsnorm(x, weight)

    def other(x, weight):
        return x * weight
    """
    checked = audit(source)
    assert list(checked.found()) == []
    (file,) = checked.tree.files.values()
    assert [function.name for function in file.syntax.unread] == ["other"]

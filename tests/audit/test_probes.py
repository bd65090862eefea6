"""Questions about FlashInfer, and what a No leads to."""

from __future__ import annotations

import pytest

from .conftest import Audited, failing, told


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


@pytest.mark.parametrize(
    ("test", "pinned", "outcomes"),
    [
        ('"runtime_max_tokens_per_rank" in parameters', "0.7.4", ["0.7.1", "0.7.2", "0.7.2.post1"]),
        ('"max_tokens_per_rank" in parameters', "0.7.2", ["0.7.3", "0.7.4"]),
    ],
)
def test_a_parameter_that_is_asked_for(audited: Audited, test: str, pinned: str, outcomes: list[str]) -> None:
    source = f"""
    import inspect
    from flashinfer.moe_ep import NVLinkOneSidedAlltoAll
    parameters = inspect.signature(NVLinkOneSidedAlltoAll.dispatch).parameters
    SUPPORTED = {test}
    """
    found = [one for one in failing(audited(source, pinned)) if one[0] == "FIC002"]
    releases = [release for release in outcomes if release != "0.7.1"]  # which has no such class
    assert found == [("FIC002", "moe_ep.NVLinkOneSidedAlltoAll.dispatch", dict.fromkeys(releases, "off"))]


@pytest.mark.parametrize(
    "source",
    [
        "import flashinfer\nHAS = hasattr(flashinfer, 'rmsnorm')",
        "import flashinfer\nHAS = hasattr(flashinfer, 'no_release_has_this')",
        "from importlib.util import find_spec\nHAS = find_spec('flashinfer') is not None",
        "BACKEND = 'flashinfer'\nIS = BACKEND == 'flashinfer'",
        """
        import inspect
        from flashinfer.moe_ep import NVLinkOneSidedAlltoAll as A
        if "max_tokens_per_rank" in inspect.signature(A.dispatch).parameters:
            A(1, 2, 3).dispatch(1, 2, 3, max_tokens_per_rank=4)
        else:
            A(1, 2, 3).dispatch(1, 2, 3, runtime_max_tokens_per_rank=4)
        """,
    ],
)
def test_what_turns_nothing_off(audited: Audited, source: str) -> None:
    assert [one for one in failing(audited(source)) if one[0] != "FIC001"] == []

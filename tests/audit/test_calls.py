"""Calls, bound to what each release takes."""

from __future__ import annotations

import pytest

from .conftest import Audited, failing, told

NEW = {"0.7.3": "breaks", "0.7.4": "breaks"}
OLD = {"0.7.1": "breaks", "0.7.2": "breaks", "0.7.2.post1": "breaks"}


@pytest.mark.parametrize(
    "source",
    [
        """
        from flashinfer.moe_ep import create_communication
        communication = create_communication(1, 2, 3)
        communication.dispatch(1, 2, 3, max_tokens_per_rank=4)
        """,
        """
        from flashinfer.moe_ep import NVLinkOneSidedAlltoAll
        def step(communication: NVLinkOneSidedAlltoAll):
            communication.dispatch(1, 2, 3, max_tokens_per_rank=4)
        """,
        """
        from flashinfer.moe_ep import NVLinkOneSidedAlltoAll
        class Engine:
            def __init__(self):
                self.communication = NVLinkOneSidedAlltoAll(1, 2, 3)
            def step(self):
                self.communication.dispatch(1, 2, 3, **{"max_tokens_per_rank": 4})
        """,
        """
        from functools import partial
        from flashinfer.moe_ep import NVLinkOneSidedAlltoAll
        def step(communication):
            kw = dict(max_tokens_per_rank=4)
            communication.dispatch(1, 2, 3, **kw)
        step(NVLinkOneSidedAlltoAll(1, 2, 3))
        """,
    ],
)
def test_a_keyword_that_is_gone(audited: Audited, source: str) -> None:
    found = [one for one in told(audited(source, "0.7.2")) if one[0] == "FIC101"]
    assert [one[2] for one in found] == [NEW]
    assert found[0][1].endswith(".dispatch")


def test_a_changed_default_is_told_and_breaks_nothing(audited: Audited) -> None:
    source = "from flashinfer.fused_moe import cutlass_fused_moe\ncutlass_fused_moe(1, 2, 3, 4, 5, 6, 7)"
    found = [one for one in audited(source) if one.code.code == "FIC105"]
    assert [told([one])[0][2] for one in found] == [{"0.7.4": "changed"}]
    assert "use_fused_finalize" in found[0].sentence()


def test_a_compiled_functions_arity(audited: Audited) -> None:
    twenty = ", ".join(["0"] * 20)
    source = f"""
    import flashinfer
    def fast_plan(self):
        args = [{twenty}]
        self._plan_info = self._cached_module.plan(*args)
    """
    assert told(audited(source)) == [("FIC201", "wrapper._cached_module.plan", NEW)]


@pytest.mark.parametrize(
    "source",
    [
        "from flashinfer import rmsnorm\nrmsnorm(1, 2, **unknown)",
        "from flashinfer import rmsnorm\nrmsnorm(*unknown)",
        """
        import inspect
        from flashinfer.moe_ep import NVLinkOneSidedAlltoAll as A
        if "max_tokens_per_rank" in inspect.signature(A.dispatch).parameters:
            A(1, 2, 3).dispatch(1, 2, 3, max_tokens_per_rank=4)
        else:
            A(1, 2, 3).dispatch(1, 2, 3, runtime_max_tokens_per_rank=4)
        """,
        """
        import flashinfer
        def fast_plan(self):
            args = [0] * 20
            self._cached_module.plan(*args)
        """,
    ],
)
def test_calls_that_never_break(audited: Audited, source: str) -> None:
    assert [one for one in failing(audited(source)) if one[0] != "FIC001"] == []

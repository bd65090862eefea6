"""Patches onto FlashInfer."""

from __future__ import annotations

import pytest

from .conftest import Audited, told

OFF = {"0.7.3": "off", "0.7.4": "off"}


@pytest.mark.parametrize(
    "source",
    [
        "import flashinfer.comm as c\nc.MoeAlltoAll = None",
        "import flashinfer.comm as c\nsetattr(c, 'MoeAlltoAll', None)",
        """
        from flashinfer import comm
        def patch():
            comm.MoeAlltoAll = None
        """,
    ],
)
def test_a_name_that_is_gone(audited: Audited, source: str) -> None:
    assert told(audited(source)) == [("FIC202", "comm.MoeAlltoAll", OFF)]


@pytest.mark.parametrize(
    "source",
    [
        "import flashinfer.norm as n\nn.rmsnorm = None",
        "import flashinfer.norm as n\nn.of_the_engines_own = None",
        "import other as c\nc.MoeAlltoAll = None",
        "import flashinfer.comm as c\nif hasattr(c, 'MoeAlltoAll'):\n    c.MoeAlltoAll = None",
    ],
)
def test_what_is_read(audited: Audited, source: str) -> None:
    assert [one for one in told(audited(source)) if one[0] == "FIC202"] == []

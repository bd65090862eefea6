"""Releases compared."""

from __future__ import annotations

import pytest

from .conftest import Audited, told


@pytest.mark.parametrize(
    ("source", "pinned", "expected"),
    [
        (
            "import flashinfer\nNEW = flashinfer.__version__ >= '0.7.2'",
            "0.7.2",
            ("FIC205", dict.fromkeys(("0.7.1", "0.7.2.post1", "0.7.3", "0.7.4"), "changed")),
        ),
        (
            "import flashinfer\nGATE = flashinfer.__version__ == '0.7.2'",
            "0.7.2",
            ("FIC002", dict.fromkeys(("0.7.1", "0.7.2.post1", "0.7.3", "0.7.4"), "off")),
        ),
        (
            """
            from importlib.metadata import version
            from packaging.version import Version
            NEW = Version(version("flashinfer-python")) >= Version("0.7.3")
            """,
            "0.7.4",
            ("FIC002", dict.fromkeys(("0.7.1", "0.7.2", "0.7.2.post1"), "off")),
        ),
    ],
)
def test_a_gate(audited: Audited, source: str, pinned: str, expected: tuple[str, dict[str, str]]) -> None:
    (code, symbol, outcomes) = told(audited(source, pinned))[0]
    assert (symbol, (code, outcomes)) == ("__version__", expected)


@pytest.mark.parametrize(
    "source",
    [
        "import flashinfer\nprint(flashinfer.__version__)",
        "import other\nNEW = other.__version__ >= '0.7.2'",
        """
        import flashinfer
        from packaging.version import Version
        OLD = Version(flashinfer.__version__) >= Version("0.7.0")
        """,
    ],
)
def test_no_gate(audited: Audited, source: str) -> None:
    assert told(audited(source)) == []

"""Bodies are left out only where that changes nothing of what a module is recorded as."""

from __future__ import annotations

import pytest

from flashinfer_compat.surfaces.bodies import without_bodies
from flashinfer_compat.surfaces.python_source import parsed, read_module

SHORTENED = [
    ("def f(a):\n    return 1\nX = 1\n", "def f(a):\n ...\nX = 1\n"),
    ("def f(\n    a,\n    b=1,\n) -> int:  # why\n    return 1\n",
        "def f(\n    a,\n    b=1,\n) -> int:  # why\n ...\n"),
    ("class A:\n    async def f(self):\n        def g():\n            pass\n        return g\n    x = 1\n",
        "class A:\n    async def f(self):\n     ...\n    x = 1\n"),
    ('def f():\n    """Text.\n\n  def g(): of text\n    """\n    return 1\nX = 1\n', "def f():\n ...\nX = 1\n"),
    ("def f():\n    return 1\n  # a comment further out\n    return 2\nX = 1\n", "def f():\n ...\nX = 1\n"),
]  # fmt: skip

LEFT_WHOLE = [
    pytest.param("def f(a): return 1\nX = 1\n", id="on one line"),
    pytest.param('def f():\n    s = """\nX = 1\n"""\n    return s\nY = 2\n', id="a string at the margin"),
    pytest.param('S = """\ndef f():\n    return 1\n"""\nX = 1\n', id="a definition in a string"),
    pytest.param("def f(a,\n      b):\n    return 1\n", id="a header that ends further in"),
    pytest.param('def __getattr__(name):\n    if name == "X":\n        return 1\n', id="__getattr__"),
]


@pytest.mark.parametrize(("source", "expected"), SHORTENED)
def test_bodies_are_left_out(source: str, expected: str) -> None:
    assert without_bodies(source.encode()).decode() == expected


@pytest.mark.parametrize("source", LEFT_WHOLE)
def test_what_is_not_certain_stays(source: str) -> None:
    assert without_bodies(source.encode()).decode() == source


@pytest.mark.parametrize("source", [source for source, _ in SHORTENED])
def test_the_record_is_the_same(source: str) -> None:
    whole, shortened = source.encode(), without_bodies(source.encode())
    modules = [read_module("flashinfer.m", parsed(text), text, package=False) for text in (whole, shortened)]
    assert modules[0] == modules[1]

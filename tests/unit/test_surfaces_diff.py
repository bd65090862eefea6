"""What is reported between two releases: (old, new, expected), and the severities behind the exit."""

from __future__ import annotations

from pathlib import Path

import pytest
from surface_of import surface_of

from flashinfer_compat.surfaces import breakages as kinds
from flashinfer_compat.surfaces import report
from flashinfer_compat.surfaces.breakages import Breakage, Severity
from flashinfer_compat.surfaces.diff import diff, worst

F = "flashinfer.ops.f"


def compared(tmp_path: Path, old: str, new: str, names: list[str] | None = None) -> list[Breakage]:
    surfaces = [
        surface_of(tmp_path, {"ops.py": source, "other.py": "def telling(x, y, z): ..."}, version=version)
        for version, source in (("1.0", old), ("1.1", new))
    ]
    return diff(*surfaces, names)


FUNCTIONS = [
    ("def f(a): ...", "def f(a): ...", []),
    ("def f(a): ...", "def f(a, b=1): ...", [kinds.ParameterAdded(symbol=F, parameter="b", default="1")]),
    ("def f(a): ...", "def f(a, *, b): ...", [kinds.ParameterAddedRequired(symbol=F, parameter="b")]),
    ("def f(a, c=2): ...", "def f(a, b=1, c=2): ...", [kinds.ParameterInserted(symbol=F, parameter="b", before="c")]),
    ("def f(a, b=1): ...", "def f(a): ...", [kinds.ParameterRemoved(symbol=F, parameter="b")]),
    ("def f(a, b=1): ...", "def f(a, *args, **kwargs): ...",
        [kinds.ParameterAbsorbed(symbol=F, parameter="b"),
         kinds.ParameterAdded(symbol=F, parameter="args", default=None),
         kinds.ParameterAdded(symbol=F, parameter="kwargs", default=None)]),
    ("def f(a, b=1): ...", "def f(a, c=1): ...", [kinds.ParameterRenamed(symbol=F, parameter="b", to="c")]),
    ("def f(*, a=1, b=2): ...", "def f(*, b=2, c=1): ...", [kinds.ParameterRenamed(symbol=F, parameter="a", to="c")]),
    ("def f(b=1): ...", "@deprecated_aliases(b='c')\ndef f(c=2): ...",
        [kinds.ParameterRenamed(symbol=F, parameter="b", to="c", alias=True)]),
    ("@deprecated_aliases(b='c')\ndef f(c=2): ...", "def f(c=2): ...",
        [kinds.KeywordsNoLongerTaken(symbol=F, parameter="b")]),
    ("def f(a, b): ...", "def f(b, a): ...",
        [kinds.ParameterReordered(symbol=F, parameter="a", old=0, new=1),
         kinds.ParameterReordered(symbol=F, parameter="b", old=1, new=0)]),
    ("def f(a=1): ...", "def f(a=2): ...", [kinds.DefaultChanged(symbol=F, parameter="a", old="1", new="2")]),
    ("def f(a=1): ...", "def f(a): ...", [kinds.BecameRequired(symbol=F, parameter="a")]),
    ("def f(a): ...", "def f(a=1): ...", [kinds.BecameOptional(symbol=F, parameter="a", default="1")]),
    ("def f(a): ...", "def f(*, a): ...", [kinds.BecameKeywordOnly(symbol=F, parameter="a")]),
    ("def f(a): ...", "def f(a, /): ...", [kinds.BecamePositionalOnly(symbol=F, parameter="a")]),
    ("def f(*, a): ...", "def f(a): ...", [kinds.BecamePositional(symbol=F, parameter="a")]),
    ("def f(a: int): ...", "def f(a: str): ...",
        [kinds.AnnotationChanged(symbol=F, parameter="a", old="int", new="str")]),
    ("def f() -> int: ...", "def f(): ...",
        [kinds.AnnotationChanged(symbol=F, parameter="return", old="int", new=None)]),
    ("def f(a: Literal['x', 'y']): ...", "def f(a: Literal['x', 'z']): ...",
        [kinds.AnnotationChanged(symbol=F, parameter="a", old="Literal['x', 'y']", new="Literal['x', 'z']"),
         kinds.ValuesAdded(symbol=F, parameter="a", values=("'z'",)),
         kinds.ValuesRemoved(symbol=F, parameter="a", values=("'y'",))]),
    ('def f(a="x"): ...', "def f( a = 'x' ): ...", []),
]  # fmt: skip

NAMES = [
    ("f = 1", "f = 2", [kinds.ValueChanged(symbol=F, old="1", new="2")]),
    ("def f(): ...", "class f: ...", [kinds.WhatChanged(symbol=F, old="function", new="class")]),
    ("def f(): ...", "", [kinds.Removed(symbol=F, what="function")]),
    ("", "def f(): ...", [kinds.Added(symbol=F, what="function")]),
    ("def f(x, y, z): ...", "def g(x, y, z): ...",
        [kinds.Renamed(symbol=F, to="g"), kinds.Added(symbol="flashinfer.ops.g", what="function")]),
    ("def f(x): ...", "def g(x): ...",
        [kinds.Removed(symbol=F, what="function"), kinds.Added(symbol="flashinfer.ops.g", what="function")]),
    ("from .other import telling", "",
        [kinds.Moved(symbol="flashinfer.ops.telling", to="flashinfer.other.telling")]),
    ("def telling(x, y, z): ...", "from .other import telling",
        [kinds.DefinedElsewhere(
            symbol="flashinfer.ops.telling", old="flashinfer.ops.telling", new="flashinfer.other.telling")]),
    ("class f(Base): ...", "class f: ...", [kinds.BaseRemoved(symbol=F, base="Base")]),
    ("class f:\n  def m(self): ...", "class f: ...", [kinds.Removed(symbol=f"{F}.m", what="function")]),
    ("class f:\n  def m(self): ...", "class b:\n  def m(self): ...\nclass f(b): ...",
        [kinds.Added(symbol="flashinfer.ops.b", what="class")]),
    ("class f:\n  def m(self, a): ...", "class f:\n  def m(this, a, b=1): ...",
        [kinds.ParameterAdded(symbol=f"{F}.m", parameter="b", default="1")]),
    ("class f:\n  def __init__(self, a): ...", "class f:\n  def __init__(self): ...",
        [kinds.ParameterRemoved(symbol=f"{F}.__init__", parameter="a")]),
    ("@dataclass\nclass f:\n  a: int\n  b: int = 1", "@dataclass\nclass f:\n  a: int\n  c: str = ''\n  b: int = 1",
        [kinds.ParameterInserted(symbol=f"{F}.__init__", parameter="c", before="b")]),
    ("class f:\n  def __init__(self):\n    if A:\n      self.x, self.y = 1, 2\n    self.z: int = 3",
     "class f:\n  x = 1\n  def __init__(me):\n    me.y = 1\n    me.w += 1",
        [kinds.Added(symbol=f"{F}.w", what="attribute"), kinds.Removed(symbol=f"{F}.z", what="attribute")]),
    ("class f(Enum):\n  A = 1\n  B = 2", "class f(Enum):\n  A = 1", [kinds.Removed(symbol=f"{F}.B", what="value")]),
    ("class f(Enum):\n  A = 1", "class f(Enum):\n  A = 2", [kinds.ValueChanged(symbol=f"{F}.A", old="1", new="2")]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), [*FUNCTIONS, *NAMES])
def test_differences(tmp_path: Path, old: str, new: str, expected: list[Breakage]) -> None:
    found = compared(tmp_path, old, new)
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert set(found) == set(expected)


def test_a_single_name_is_compared_with_what_it_inherits_and_under_any_of_its_names(tmp_path: Path) -> None:
    old = "class b:\n  def m(self, a): ...\nclass f(b): ..."
    new = "class b:\n  def m(self): ...\nclass f(b): ..."
    assert compared(tmp_path, old, new, ["ops.f"]) == [kinds.ParameterRemoved(symbol=f"{F}.m", parameter="a")]
    assert compared(tmp_path, old, new, ["ops.f.m"]) == [kinds.ParameterRemoved(symbol=f"{F}.m", parameter="a")]
    assert compared(tmp_path, old, new, ["ops.nothing"]) == []


CPP = """
void Plan(TensorView q, {parameter});
TVM_FFI_DLL_EXPORT_TYPED_FUNC(plan, Plan);
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("int64_t n", "int64_t n, bool b", kinds.ArityChanged(symbol="data/csrc/op.cu:plan", old=2, new=3)),
        ("int64_t n", "bool n", kinds.ArgumentsChanged(
            symbol="data/csrc/op.cu:plan", old=("TensorView q", "int64_t n"), new=("TensorView q", "bool n"))),
    ],
)  # fmt: skip
def test_jit_functions(tmp_path: Path, old: str, new: str, expected: Breakage) -> None:
    surfaces = [
        surface_of(tmp_path, {"data/csrc/op.cu": CPP.replace("{parameter}", text)}, version=version)
        for version, text in (("1.0", old), ("1.1", new))
    ]
    assert diff(*surfaces) == [expected]
    assert diff(*surfaces, ["data/csrc/op.cu:plan"]) == [expected]
    assert diff(*surfaces, ["data/csrc/op.cu:other"]) == []


def test_templates(tmp_path: Path) -> None:
    header = "data/include/flashinfer/op.cuh"
    old, new, more = (
        surface_of(tmp_path, {header: source}, version=version)
        for version, source in (
            ("1.0", "template <int I> void D(int i);"),
            ("1.1", "template <int I> void D(int i, int& last);"),
            ("1.2", "template <int I> void D(int i, int& last);\ntemplate <int I> void D(bool b);"),
        )
    )
    assert diff(old, new) == [
        kinds.TemplateChanged(
            symbol=f"{header}:D", old="template <int I> (int i)", new="template <int I> (int i, int& last)"
        )
    ]
    assert diff(new, more) == [kinds.Added(symbol=f"{header}:D", what="overload")]


def test_requirements(tmp_path: Path) -> None:
    old = surface_of(tmp_path, {}, version="1.0", requires=["a>=1", "b", "c<2", "e"], python=">=3.9")
    new = surface_of(tmp_path, {}, version="1.1", requires=["a>=2", "c<3", "d", "e"], python=">=3.10")
    assert set(diff(old, new)) == {
        kinds.FloorRaised(symbol="a", old=">=1", new=">=2"),
        kinds.RequirementDropped(symbol="b", version=""),
        kinds.RequirementChanged(symbol="c", old="<2", new="<3"),
        kinds.RequirementAdded(symbol="d", version=""),
        kinds.RequirementChanged(symbol="Requires-Python", old=">=3.9", new=">=3.10"),
    }


@pytest.mark.parametrize(
    ("old", "new", "severity"),
    [
        ("def f(a): ...", "def f(a): ...", Severity.NONE),
        ("def f(a): ...", "def f(a, b=1): ...", Severity.NONE),
        ("def f(a: int): ...", "def f(a: str): ...", Severity.NONE),
        ("def f(a=1): ...", "def f(a=2): ...", Severity.MEANING),
        ("def f(a, c=1): ...", "def f(a, b=1, c=1): ...", Severity.SOME_CALLS),
        ("def f(a=1): ...", "def f(b=1): ...", Severity.SOME_CALLS),
        ("def f(b=1): ...", "@deprecated_aliases(b='c')\ndef f(c=2): ...", Severity.NONE),
        ("def f(a): ...", "def f(a, b): ...", Severity.EVERY_USE),
        ("def f(a): ...", "", Severity.EVERY_USE),
    ],
)
def test_severity_is_the_effect_on_an_older_caller(tmp_path: Path, old: str, new: str, severity: Severity) -> None:
    assert worst(compared(tmp_path, old, new)) is severity


def test_the_worst_comes_first_and_every_format_says_it(tmp_path: Path) -> None:
    found = compared(tmp_path, "def f(a): ...\ndef g(a=1): ...", "def g(a=2): ...")
    assert [one.kind for one in found] == ["Removed", "DefaultChanged"]
    assert report.as_markdown("1.0", "1.1", found) == (
        "# FlashInfer 1.0 → 1.1\n\n"
        "## Every use fails\n\n- `flashinfer.ops.f`: function removed\n\n"
        "## Runs, perhaps with another result\n\n- `flashinfer.ops.g`: parameter a defaults to 2 instead of 1\n"
    )
    assert report.as_markdown("1.0", "1.1", []).endswith("No difference.\n")
    assert '"severity": "meaning"' in report.as_json("1.0", "1.1", found)
    assert str(found[1]) == "flashinfer.ops.g: parameter a defaults to 2 instead of 1"

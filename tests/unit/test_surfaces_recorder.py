"""Reading a wheel: what each construct of FlashInfer's source is recorded as."""

from __future__ import annotations

from pathlib import Path

import pytest
from surface_of import surface_of, wheel

from flashinfer_compat.surfaces import store
from flashinfer_compat.surfaces.cpp_source import read_exports, read_templates, without_comments
from flashinfer_compat.surfaces.model import Alias, Class, Constant, Found, Function, Kind
from flashinfer_compat.surfaces.recorder import UnreadableWheel, record


def test_every_kind_of_parameter_keeps_its_name_kind_annotation_and_default(tmp_path: Path) -> None:
    surface = surface_of(
        tmp_path,
        {
            "ops.py": """
                def f(a, /, b: int, c: 'str' = "x", *rest, d, e: Optional[torch.Tensor] = None, **more) -> None: ...
            """
        },
    )
    function = surface.modules["flashinfer.ops"].symbols["f"]
    assert isinstance(function, Function)
    assert str(function) == "(a, /, b: int, c: 'str' = 'x', *rest, d, e: Optional[torch.Tensor] = None, **more) -> None"
    assert [int(one.kind) for one in function.parameters] == [0, 1, 1, 2, 3, 3, 4]
    assert [one.name for one in function.parameters if one.required] == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("X = 3", Constant("3"), id="a constant"),
        pytest.param("X: Final = (1,  2)", Constant("(1, 2)", "Final"), id="annotated, layout in normal form"),
        pytest.param("X, Y = 1, 2", Constant("1"), id="one of several"),
        pytest.param("from .other import thing as X", Alias("flashinfer.other:thing"), id="a re-export"),
        pytest.param("import flashinfer.other as X", Alias("flashinfer.other:"), id="a module"),
        pytest.param("from .other import *", Alias("flashinfer.other:X"), id="a star"),
        pytest.param("def f(): ...\nX = f", Alias("flashinfer.ops:f"), id="another name of a function"),
        pytest.param(
            "try:\n  from .other import X\nexcept ImportError:\n  X = None", Alias("flashinfer.other:X"), id="try"
        ),
        pytest.param("X = None\nif A:\n  X = 1\nelse:\n  X = 2", Constant("1"), id="the first arm"),
        pytest.param("if A:\n  Y = 1\nelse:\n  X = 2", Constant("2"), id="an alternative that binds more"),
        pytest.param("import torch as X", None, id="nothing of FlashInfer's"),
        pytest.param("if TYPE_CHECKING:\n  from .other import X", None, id="for type checkers only"),
        pytest.param("X = 1\ndel X", None, id="deleted"),
    ],
)
def test_a_modules_names(tmp_path: Path, source: str, expected: object) -> None:
    surface = surface_of(tmp_path, {"ops.py": source, "other.py": "thing = 1\nX = 2\n_private = 3"})
    assert surface.modules["flashinfer.ops"].symbols.get("X") == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param(
            """
            _LAZY = frozenset({"X"})
            def __getattr__(name):
                if name not in _LAZY:
                    raise AttributeError(name)
                from . import other
                return getattr(other, name)
            """,
            "flashinfer.other:X",
            id="a frozenset",
        ),
        pytest.param(
            """
            _LAZY = {"X": ".other"}
            def __getattr__(name):
                module = _LAZY.get(name)
                if module is not None:
                    return getattr(importlib.import_module(module, __name__), name)
                if name == "Old":
                    return thing
                raise AttributeError(name)
            """,
            "flashinfer.other:X",
            id="a table of modules",
        ),
        pytest.param(
            """
            _LAZY = {"X": ("flashinfer.other", "thing")}
            def __getattr__(name):
                if name in _LAZY:
                    module, attribute = _LAZY[name]
                    return getattr(importlib.import_module(module), attribute)
                raise AttributeError(name)
            """,
            "flashinfer.other:thing",
            id="a table of modules and names",
        ),
        pytest.param(
            """
            def __getattr__(name):
                if name == "X":
                    from .other import thing
                    return thing
                raise AttributeError(name)
            """,
            "flashinfer.other:thing",
            id="a name and its import",
        ),
        pytest.param(
            """
            if TYPE_CHECKING:
                from .other import thing as X
            _NAMES = ("X",)
            def __getattr__(name):
                if name in _NAMES:
                    return _load(name)
                raise AttributeError(name)
            """,
            "flashinfer.other:thing",
            id="told to type checkers",
        ),
        pytest.param(
            """
            __all__ = ["X"]
            def __getattr__(name):
                return _load(name)
            """,
            None,
            id="only __all__ tells",
        ),
    ],
)
def test_lazily_exported_names(tmp_path: Path, source: str, target: str | None) -> None:
    surface = surface_of(tmp_path, {"ops.py": source, "other.py": "thing = 1\nX = 2"})
    assert surface.modules["flashinfer.ops"].symbols["X"] == Alias(target, lazy=True)


CLASSES = """
import enum, dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, overload

@dataclass
class Base:
    a: int
    b: int = 1
    c: ClassVar[int] = 2
    d: list = field(default_factory=list)
    e: int = field(default=0, kw_only=True)
    f: int = field(init=False, default=1)

@dataclass(kw_only=True)
class Derived(Base):
    b: ClassVar[int] = 3
    g: str

class Layout(enum.IntEnum):
    NHD = 0
    HND = 1

class Wrapper(Base):
    def __init__(self, x): ...
    def plan(self, n): ...
    begin_forward = plan
    @property
    def size(self): ...
    @size.setter
    def size(self, value): ...
    @overload
    def run(self, q: int) -> int: ...
    @overload
    def run(self, q: str) -> str: ...
    @flashinfer_api
    def run(self, q): ...
"""


def test_classes(tmp_path: Path) -> None:
    surface = surface_of(tmp_path, {"ops.py": CLASSES})
    base, derived, layout, wrapper = (
        Found("flashinfer.ops", name, surface.modules["flashinfer.ops"].symbols[name])
        for name in ("Base", "Derived", "Layout", "Wrapper")
    )
    assert [one.name for one in surface.constructor(base) or ()] == ["a", "b", "d", "e"]
    assert [(one.name, one.kind) for one in surface.constructor(derived) or ()] == [
        ("a", Kind.POSITIONAL_OR_KEYWORD),
        ("d", Kind.POSITIONAL_OR_KEYWORD),
        ("e", Kind.KEYWORD_ONLY),
        ("g", Kind.KEYWORD_ONLY),
    ]
    assert isinstance(layout.symbol, Class)
    assert layout.symbol.enum_members == {"NHD": "0", "HND": "1"}
    assert [one.name for one in surface.constructor(wrapper) or ()] == ["x"]
    run = surface.find("ops.Wrapper.run")
    assert run is not None
    assert isinstance(run.symbol, Function)
    assert run.symbol.is_api
    assert [str(one) for one in run.symbol.overloads] == ["(self, q: int) -> int", "(self, q: str) -> str"]
    size = surface.find("ops.Wrapper.size")
    assert size is not None
    assert isinstance(size.symbol, Function)
    assert size.symbol.is_property
    assert len(size.symbol.parameters) == 1
    alias = surface.find("ops.Wrapper.begin_forward")
    assert alias is not None
    assert alias.dotted == "flashinfer.ops.Wrapper.plan"


def test_keywords_that_only_a_decorator_takes(tmp_path: Path) -> None:
    surface = surface_of(
        tmp_path,
        {
            "_compat.py": """
                def legacy(function):
                    def wrapped(*args, **kwargs):
                        value = kwargs.pop("do_finalize", None)
                        if value is not None:
                            kwargs["finalize_mode"] = value
                        return function(*args, **kwargs)
                    return wrapped
                def checked(function):
                    def wrapped(*args, **kwargs):
                        kwargs.pop("skip_check", False)
                        return function(*args, **kwargs)
                    return wrapped
            """,
            "ops.py": """
                from ._compat import legacy, checked
                @deprecated_aliases(old="new")
                @legacy
                def f(new, finalize_mode): ...
                @checked
                def g(x): ...
            """,
        },
    )
    f, g = surface.find("ops.f"), surface.find("ops.g")
    assert f
    assert g
    assert surface.accepts(f) == {"old": "new", "do_finalize": "finalize_mode"}
    assert surface.accepts(g) == {"skip_check": ""}


def test_names_are_found_through_reexports_cycles_and_a_module_of_the_same_name(tmp_path: Path) -> None:
    surface = surface_of(
        tmp_path,
        {
            "__init__.py": "from .xqa import xqa\nfrom . import jit as jit\nfrom .a import lost",
            "xqa.py": "def xqa(): ...",
            "jit/__init__.py": "from .core import spec",
            "jit/core.py": "def spec(): ...",
            "a.py": "from .b import lost",
            "b.py": "from .a import lost",
        },
    )
    found = {name: surface.find(name) for name in ("xqa", "jit.spec", "jit", "lost", "nothing")}
    assert {name: one and one.dotted for name, one in found.items()} == {
        "xqa": "flashinfer.xqa.xqa",
        "jit.spec": "flashinfer.jit.core.spec",
        "jit": "flashinfer.jit",
        "lost": None,
        "nothing": None,
    }


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            "Array<int64_t> Plan(TensorView q, Array<int64_t> v,\n  bool b);\n"
            "TVM_FFI_DLL_EXPORT_TYPED_FUNC(plan, Plan);",
            {"plan": ("TensorView q", "Array<int64_t> v", "bool b")},
            id="declared in the file",
        ),
        pytest.param(
            "void n::Run() { return Other(1); }\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(run, &n::Run);",
            {"run": ()},
            id="no parameter",
        ),
        pytest.param(
            "// int F(int a);\nauto x = F(1);\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(f, F);", {"f": "F"}, id="only called here"
        ),
        pytest.param(
            "TVM_FFI_DLL_EXPORT_TYPED_FUNC(f, [](int a, float b) { return a; });",
            {"f": ("int a", "float b")},
            id="a lambda",
        ),
    ],
)
def test_exported_jit_functions(source: str, expected: object) -> None:
    assert read_exports(without_comments(source)) == expected


def test_function_templates() -> None:
    source = """
        template <typename T, uint32_t N = (3 > 2)>
        __global__ void __launch_bounds__(128) Kernel(T* x, vec_t<float, N> v) {}
        template <typename T> struct Holder { template <int I> T get(int i) const; };
        template <bool D> void Kernel(int only);
    """
    found = read_templates(without_comments(source))
    assert {name: [str(one) for one in overloads] for name, overloads in found.items()} == {
        "Kernel": [
            "template <typename T, uint32_t N = (3 > 2)> (T* x, vec_t<float, N> v)",
            "template <bool D> (int only)",
        ],
        "get": ["template <int I> (int i)"],
    }


def test_an_export_declared_in_an_included_header_has_its_parameters(tmp_path: Path) -> None:
    surface = surface_of(
        tmp_path,
        {
            "data/csrc/op.cu": '#include "op.h"\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(op, Op);',
            "data/csrc/op.h": "void Op(int64_t n);",
            "data/include/flashinfer/op.cuh": "template <int I> void Device(int i);",
        },
    )
    assert surface.sources["data/csrc/op.cu"].exports == {"op": ("int64_t n",)}
    assert list(surface.sources["data/include/flashinfer/op.cuh"].templates) == ["Device"]


def test_recording_again_gives_the_same_bytes_however_many_processes(tmp_path: Path) -> None:
    files = {f"m{number}.py": CLASSES for number in range(9)} | {"bad.py": "def f(:"}
    path = wheel(tmp_path, files, requires=["torch", "numpy>=1"], python=">=3.10")
    once, again = (store.write(record(path, processes=count)) for count in (1, 2))
    assert once == again
    surface = store.read(once)
    assert surface.metadata.requires_dist == ("torch", "numpy>=1")
    assert surface.metadata.requires_python == ">=3.10"
    assert len(surface.metadata.sha256 or "") == 64
    assert surface.modules["flashinfer.bad"].dynamic, "a module that cannot be parsed is there, its names are not known"
    assert dict(surface.lines) == dict(record(path, processes=1).lines)


def test_a_file_holds_only_what_differs_from_its_base(tmp_path: Path) -> None:
    old = surface_of(tmp_path, {"same.py": "X = 1", "changed.py": "X = 1"}, version="1.0")
    new = surface_of(tmp_path, {"same.py": "X = 1", "changed.py": "X = 2", "added.py": ""}, version="1.1")
    read = store.read(store.write(new, base=old), opened=lambda release: {"1.0": old}[release])
    assert dict(read.lines) == dict(new.lines)
    assert read.modules["flashinfer.changed"].symbols["X"] == Constant("2")
    assert read.modules["flashinfer.same"] == old.modules["flashinfer.same"]


@pytest.mark.parametrize("content", [b"no zip", None])
def test_what_is_no_wheel_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.whl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableWheel, match="is no FlashInfer wheel"):
        record(path)

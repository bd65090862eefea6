"""griffe as the oracle: of what both read, the diff reports at least what griffe calls breaking.

The wheels of two releases are no part of the suite. With FLASHINFER_WHEELS, a folder that holds them, FlashInfer's own
modules are compared; without, modules written to have each breakage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest
from surface_of import surface_of

from flashinfer_compat.surfaces import breakages as kinds
from flashinfer_compat.surfaces import store
from flashinfer_compat.surfaces.breakages import Breakage
from flashinfer_compat.surfaces.diff import diff
from flashinfer_compat.surfaces.model import Surface

griffe = pytest.importorskip("griffe", reason="griffe is the oracle of this test alone")

_POSITIONS = (
    kinds.ParameterReordered,
    kinds.ParameterInserted,
    kinds.ParameterRemoved,
    kinds.ParameterRenamed,
    kinds.ParameterAddedRequired,
    kinds.BecameKeywordOnly,
)
_GONE = (kinds.Removed, kinds.Moved, kinds.Renamed)
_KINDS = (kinds.BecameKeywordOnly, kinds.BecamePositionalOnly, kinds.BecamePositional)
#: griffe's kind -> ours that say it.
SAID_BY: dict[str, tuple[type[Breakage], ...]] = {
    "PARAMETER_MOVED": _POSITIONS,
    "PARAMETER_REMOVED": (kinds.ParameterRemoved, kinds.ParameterRenamed),
    "PARAMETER_CHANGED_KIND": _KINDS,
    "PARAMETER_CHANGED_DEFAULT": (kinds.DefaultChanged,),
    "PARAMETER_CHANGED_REQUIRED": (kinds.BecameRequired,),
    "PARAMETER_ADDED_REQUIRED": (kinds.ParameterAddedRequired, kinds.ParameterRenamed),
    "RETURN_CHANGED_TYPE": (kinds.AnnotationChanged,),
    "OBJECT_REMOVED": (*_GONE, kinds.ParameterRemoved, kinds.ParameterRenamed),
    "OBJECT_CHANGED_KIND": (kinds.WhatChanged,),
    "ATTRIBUTE_CHANGED_TYPE": (kinds.AnnotationChanged, kinds.WhatChanged),
    "ATTRIBUTE_CHANGED_VALUE": (kinds.ValueChanged, kinds.DefaultChanged, kinds.BecameRequired, kinds.BecameOptional),
    "CLASS_REMOVED_BASE": (kinds.BaseRemoved,),
}


def by_symbol(found: list[Breakage]) -> dict[str, list[Breakage]]:
    said: dict[str, list[Breakage]] = {}
    for one in found:
        said.setdefault(one.symbol, []).append(one)
    return said


def unsaid(module: str, old: bytes, new: bytes, said: Mapping[str, list[Breakage]]) -> Iterator[str]:
    """What griffe reports of a module and ours do not say."""
    trees = [griffe.visit(module, Path("source.py"), source.decode()) for source in (old, new)]
    for breakage in griffe.find_breaking_changes(*trees):
        path = breakage.obj.path
        holder = path.rpartition(".")[0]
        # A field's change is its constructor's; a changed member may be reported by its class having become another.
        places = [path, f"{holder}.__init__", f"{path}.__init__", holder]
        found = [one for place in places for one in said.get(place, ())]
        if not any(isinstance(one, SAID_BY[breakage.kind.name]) for one in found):
            yield f"{breakage.kind.name} {path}"


OLD = """
from dataclasses import dataclass
from enum import Enum
class Gone: ...
class Base: ...
class Kept(Base):
    limit = 1
    def plan(self, a, b, c=1, *, d): ...
    def run(self, q) -> int: ...
    def lost(self): ...
@dataclass
class Config:
    a: int
    b: int = 1
class Layout(Enum):
    NHD = 0
    HND = 1
def required(a): ...
def moved(a, b, c): ...
def default(a=1): ...
def keyword(a, b): ...
def became(x): ...
SIZE = 1
"""
NEW = """
from dataclasses import dataclass
from enum import Enum
class Base: ...
class Kept:
    limit = 2
    def plan(self, a, c=1, *, d, e): ...
    def run(self, q) -> str: ...
@dataclass
class Config:
    a: str
    b: int = 2
class Layout(Enum):
    NHD = 1
def required(a, b): ...
def moved(a, c, b): ...
def default(a=2): ...
def keyword(a, *, b): ...
class became: ...
SIZE = 2
"""


def test_every_kind_that_griffe_knows(tmp_path: Path) -> None:
    old, new = (surface_of(tmp_path, {"ops.py": source}, version=source[-2]) for source in (OLD, NEW))
    trees = [griffe.visit("flashinfer.ops", Path("ops.py"), source) for source in (OLD, NEW)]
    seen = {breakage.kind.name for breakage in griffe.find_breaking_changes(*trees)}
    assert {"PARAMETER_MOVED", "OBJECT_REMOVED", "CLASS_REMOVED_BASE", "OBJECT_CHANGED_KIND"} <= seen
    assert list(unsaid("flashinfer.ops", OLD.encode(), NEW.encode(), by_symbol(diff(old, new)))) == []


WHEELS = os.environ.get("FLASHINFER_WHEELS")
#: What griffe reports and is none, and why.
NO_BREAKAGE = {
    "OBJECT_CHANGED_KIND flashinfer.dsa_indexer.dsa_indexer_topk": "another name of a function now",
    "OBJECT_CHANGED_KIND flashinfer.dsa_indexer.dsa_indexer_topk_workspace_size": "another name of a function now",
    "OBJECT_CHANGED_KIND flashinfer.fused_moe.bgmv_moe.BGMVMoEBlackwellPlan": "another name of a class now",
}


def is_still_there(reported: str, surface: Surface) -> bool:
    """Whether what griffe misses in a class is a base's, in another module, or set with others at once."""
    kind, path = reported.split()
    holder, _, name = path.rpartition(".")
    found = surface.find(holder)
    return (
        kind == "OBJECT_REMOVED"
        and found is not None
        and (surface.member(found, name) is not None or name in surface.attributes(found))
    )


@pytest.mark.skipif(not WHEELS, reason="FLASHINFER_WHEELS names no folder with FlashInfer's wheels")
@pytest.mark.parametrize("releases", [("0.7.1", "0.7.2"), ("0.7.2", "0.7.2.post1"), ("0.7.2.post1", "0.7.4")])
def test_flashinfers_own_modules(releases: tuple[str, str]) -> None:
    """All but trials and kernels' sources; half a minute at most."""
    surfaces = [store.open_surface(release) for release in releases]
    archives = [ZipFile(Path(WHEELS or "") / f"flashinfer_python-{release}-py3-none-any.whl") for release in releases]
    said = by_symbol(diff(*surfaces))
    left: list[str] = []
    for name in surfaces[0].modules:
        lines = [surface.lines.get(name) for surface in surfaces]
        if lines[0] == lines[1] or None in lines or ".experimental" in name or ".kernel_src" in name:
            continue
        packages = [surface.modules[name].package for surface in surfaces]
        paths = [f"{name.replace('.', '/')}{'/__init__' if package else ''}.py" for package in packages]
        left += unsaid(name, *(archive.read(path) for archive, path in zip(archives, paths, strict=True)), said)
    assert [one for one in left if one not in NO_BREAKAGE and not is_still_there(one, surfaces[1])] == []

"""Every public or engine-used symbol that differs between supported releases is adapted, or it is said why not.

tests/completeness/refresh.py rewrites what is pending: run it when an adapter gains a line or a release is recorded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the adapters' tables need torch")

sys.path.insert(0, str(Path(__file__).parents[1] / "completeness"))
import refresh

from flashinfer_compat.adapters.model import split
from flashinfer_compat.surfaces.differing import Differing
from flashinfer_compat.surfaces.lifetimes import lifetime

LISTED = json.loads(refresh.NOT_ADAPTED.read_text())
DELIBERATE = {name: entry["reason"] for entry in LISTED["deliberate"] for name in entry["symbols"]}
PENDING = {name for names in LISTED["pending"].values() for name in names}
REFRESH = "run tests/completeness/refresh.py pending"


@pytest.fixture(scope="module")
def differing() -> list[Differing]:
    return refresh.all_differing()


@pytest.fixture(scope="module")
def adapted(differing: list[Differing]) -> set[str]:
    definitions = refresh.adapted_definitions()
    return {symbol.name for symbol in differing if symbol.definition in definitions}


def test_every_differing_symbol_is_adapted_or_listed(differing: list[Differing], adapted: set[str]) -> None:
    missed = [
        f"{symbol.name}: {release}: {breakage.sentence()}"
        for symbol in differing
        if symbol.name not in adapted | set(DELIBERATE) | PENDING and not symbol.only_added
        for release, breakage in symbol.breakages
    ]
    assert missed == [], REFRESH


def test_what_is_listed_differs_and_is_not_adapted(differing: list[Differing], adapted: set[str]) -> None:
    listed = PENDING | set(DELIBERATE)
    assert sorted(listed - {symbol.name for symbol in differing}) == [], REFRESH
    assert sorted(listed & adapted) == [], REFRESH
    assert sorted(PENDING & set(DELIBERATE)) == [], REFRESH


def test_every_deliberate_non_adaptation_has_its_reason() -> None:
    assert [name for name, reason in DELIBERATE.items() if len(reason.split()) < 3] == []


def test_what_a_release_lacks_is_told_by_its_lifetime() -> None:
    """The symbols that only newer releases have need no line: reading them says which releases have them."""
    assert refresh.LIFETIMES.read_text() == refresh.lifetimes_text(), "run tests/completeness/refresh.py lifetimes"


def test_every_symbol_that_older_releases_lack_has_its_lifetime(differing: list[Differing], adapted: set[str]) -> None:
    lacking = [symbol for symbol in differing if symbol.only_added and symbol.name not in adapted]
    # A method or a field that a class has not yet is the class's to refuse.
    names = [symbol.name for symbol in lacking if split(symbol.name)[1] == ""]
    assert len(names) > 300
    assert [name for name in names if lifetime(name) is None] == []


def test_every_used_name_is_found_in_a_supported_release() -> None:
    surfaces = refresh.supported_surfaces()
    used = json.loads(refresh.USED.read_text())
    lost = [
        name
        for engine in used.values()
        for name in engine["names"]
        if not any(surface.find(name) for surface in surfaces)
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("name", "release", "sentence"),
    [
        ("quantization.fp4_quantize", "0.7.4", "parameter backend defaults to 'auto' instead of 'cuda'"),
        (
            "moe_ep.NVLinkOneSidedAlltoAll.dispatch",
            "0.7.4",
            "parameter max_tokens_per_rank renamed to runtime_max_tokens_per_rank",
        ),
        ("gemm.gemm_base._get_cache_buf", "0.7.4", "moved to flashinfer.utils._get_cache_buf"),
        ("comm.trtllm_moe_alltoall.MoeAlltoAll", "0.7.4", "class removed"),
        ("gemm.mm_fp4", "0.7.2", "parameter backend also takes 'cake'"),
    ],
)
def test_known_differences_are_among_them(differing: list[Differing], name: str, release: str, sentence: str) -> None:
    found = {symbol.name: symbol for symbol in differing}
    assert (release, sentence) in [(when, breakage.sentence()) for when, breakage in found[name].breakages]

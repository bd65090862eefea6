"""Names that other releases have: reading one that the installed release lacks says which do."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

import flashinfer_compat as flashinfer
from flashinfer_compat import FeatureUnavailable, Support, namespace
from flashinfer_compat.adapters.model import split
from flashinfer_compat.errors import MissingModule
from flashinfer_compat.lines import NameLine
from flashinfer_compat.surfaces.lifetimes import Lifetime, _table, lifetime

#: Modules, functions and classes; a class's own members come and go with what it is here.
NAMES: dict[str, Lifetime] = {
    name: found for name in _table()["names"] if split(name)[1] == "" and (found := lifetime(name))
}
ADAPTER = namespace.adapter()
SUPPLIED = {
    name for name in ADAPTER.names if any(isinstance(line, NameLine) for line in ADAPTER.names[name].get("", ()))
}
LACKING = {name: found for name, found in NAMES.items() if namespace.absence(name) and name not in SUPPLIED}


def outcome(name: str) -> str:
    try:
        namespace.facade_object(name)
    except FeatureUnavailable as error:
        return str(error)
    except ModuleNotFoundError as error:
        return "needs a package" if not (error.name or "flashinfer").startswith("flashinfer") else repr(error)
    return ""


def test_each_name_that_this_release_lacks_says_which_have_it(release: str, record_property: Any) -> None:
    counted: Counter[str] = Counter()
    missing: dict[str, str] = {}
    for name, found in LACKING.items():
        module, _, attribute = name.rpartition(".")
        try:
            holder = importlib.import_module(f"flashinfer_compat.{module}" if module else "flashinfer_compat")
        except ModuleNotFoundError as error:  # its own, or another package's
            if isinstance(error, MissingModule):
                missing[module] = str(error)
            counted[type(error).__name__] += 1
            continue
        said = outcome(name)
        if said in ("", "needs a package"):
            counted[said or "there all the same"] += 1
            continue
        assert f"{found}; installed is {flashinfer.flashinfer_version}" in said
        assert not hasattr(holder, attribute)
        assert flashinfer.supports(name) is Support.UNAVAILABLE
        assert str(found) in flashinfer.explain(name)
        counted["says which"] += 1
    assert [module for module, said in missing.items() if str(lifetime(module)) not in said] == []
    record_property("lacking", dict(counted))
    assert counted["says which"] > (5 if release in ("0.7.3", "0.7.4") else 200)
    if release != "0.7.3":  # which is presented on the code of 0.7.4: what that adds is there
        assert counted["there all the same"] == 0


def test_each_name_that_this_release_has_is_there(release: str) -> None:
    adapter = ADAPTER.release if ADAPTER.release != "0.7.3" else "0.7.4"
    there = [name for name, found in NAMES.items() if adapter in found.releases and name not in LACKING]
    wrong = {name: said for name in there if (said := outcome(name)) not in ("", "needs a package")}
    # What FlashInfer itself leaves out where a package is missing, without a word; and modules that are there once
    # they are imported.
    explained = "knows no other way", "does not import by itself"
    assert {name: said for name, said in wrong.items() if not any(told in said for told in explained)} == {}


def test_a_module_that_this_release_lacks(release: str) -> None:
    name, has = "qsa", "FlashInfer 0.7.4 and later have it"
    if release in ("0.7.3", "0.7.4"):
        name, has = "source_mega_moe", "FlashInfer 0.7.1 has it"
    with pytest.raises(ImportError, match=has):
        importlib.import_module(f"flashinfer_compat.{name}")
    assert importlib.util.find_spec(f"flashinfer_compat.{name}") is None


def test_a_module_that_flashinfer_does_not_import_by_itself() -> None:
    script = """
import flashinfer_compat
try:
    flashinfer_compat.moe_ep
except AttributeError as error:
    print(error)
from flashinfer_compat import moe_ep
assert flashinfer_compat.moe_ep is moe_ep
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.endswith("does not import by itself: import flashinfer_compat.moe_ep first.\n")


def test_a_name_that_no_release_has_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="knows no other way"):
        _ = flashinfer.norm.no_such_norm
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'flashinfer_compat\.no_such_module'"):
        importlib.import_module("flashinfer_compat.no_such_module")


@pytest.mark.parametrize(
    ("releases", "sentence"),
    [
        (("b", "c"), "FlashInfer b and later have it"),
        (("c",), "FlashInfer c and later have it"),
        (("a", "b"), "FlashInfer a to b have it"),
        (("a",), "FlashInfer a has it"),
    ],
)
def test_sentences(releases: tuple[str, ...], sentence: str) -> None:
    assert str(Lifetime(releases, ("a", "b", "c"))) == sentence

"""What this package adds to FlashInfer's names; tests/contract/test_namespace.py holds it against FlashInfer's own."""

from __future__ import annotations

import importlib
import pkgutil
from importlib import resources
from pathlib import Path

import pytest

import flashinfer_compat
from flashinfer_compat.adapters import RELEASES

#: The public names of the root beside FlashInfer's.
PUBLIC = {
    "flashinfer_version",
    "supports",
    "use_reference",
    "require",
    "report",
    "explain",
    "include_dirs",
    "Support",
    "CompatError",
    "CompatWarning",
    "FeatureUnavailable",
    "InvalidArgument",
    "InvalidPlan",
    "RoundError",
    "UnsupportedArgument",
    "UnsupportedCombination",
    "UnsupportedRelease",
}
#: FlashInfer's modules whose names would come easily to this package; FlashInfer's they stay.
TEMPTING = {"aot", "api_logging", "attention", "comm", "compilation_context", "decode", "jit", "sampling", "testing"}
TEMPTING |= {"trace", "tuning_configs", "utils", "version"}


def own_modules() -> set[str]:
    return {module.name for module in pkgutil.iter_modules(flashinfer_compat.__path__)}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_name(name: str) -> None:
    assert name in dir(flashinfer_compat)
    assert hasattr(flashinfer_compat, name)


def test_modules_take_none_of_flashinfers_names() -> None:
    assert own_modules() & TEMPTING == set()


def test_each_module_says_what_it_is_for() -> None:
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.iter_modules(flashinfer_compat.__path__, "flashinfer_compat.")
        if not module.ispkg and not module.name.endswith("__main__")
    ]
    assert [module.__name__ for module in modules if not (module.__doc__ or "").strip()] == []


def test_each_release_has_its_adapter() -> None:
    directory = Path(flashinfer_compat.__path__[0]) / "adapters"
    tables = {path.parent.name for path in directory.glob("v*/__init__.py")}
    assert tables == {f"v{release.version.replace('.', '_')}" for release in RELEASES}


def test_type_checkers_find_the_annotations() -> None:
    assert resources.files(flashinfer_compat).joinpath("py.typed").is_file()

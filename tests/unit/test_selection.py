"""Which adapter serves which installed FlashInfer: told from package metadata, with FlashInfer never imported.

Each case imports the facade in a new interpreter on a machine made of files: `packaging`, the facade, and a FlashInfer
and a torch that fail when imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import packaging
import pytest

import flashinfer_compat
from flashinfer_compat import adapters, selection

NOTHING_INSTALLED = "FlashInfer is not installed."
SUPPORTED = "0.7.1, 0.7.2, 0.7.2.post1, 0.7.3, 0.7.4"
WHAT_TO_INSTALL = "pip install flashinfer-python==0.7.4"
MUST_NOT_BE_IMPORTED = "raise AssertionError(f'{__name__} was imported')\n"

#: What an import of the facade comes to: the adapter, or the error, and the warnings.
IMPORT = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        import flashinfer_compat
    except Exception as error:
        outcome = {"error": type(error).__name__, "import_error": isinstance(error, ImportError), "message": str(error)}
    else:
        release = flashinfer_compat.namespace.selected.release
        outcome = {"installed": flashinfer_compat.flashinfer_version, "adapter": release and release.version}
outcome["warnings"] = [[warning.category.__name__, str(warning.message), warning.filename] for warning in caught]
print(json.dumps(outcome))
"""


class Machine:
    """A folder that holds all that an interpreter can import beside the standard library."""

    def __init__(self, site: Path) -> None:
        self.site = site
        for package in (packaging, flashinfer_compat):
            source = Path(package.__path__[0])
            (site / source.name).symlink_to(source, target_is_directory=True)
        self.package("torch")

    def package(self, name: str = "flashinfer") -> Path:
        """A package that must not be imported."""
        directory = self.site / name
        directory.mkdir(exist_ok=True)
        (directory / "__init__.py").write_text(MUST_NOT_BE_IMPORTED)
        return directory

    def distribution(self, version: str, name: str = "flashinfer-python") -> None:
        """The metadata of an installed distribution."""
        directory = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        directory.mkdir()
        (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def marker(self, release: adapters.Release) -> None:
        """A source file of the package by which `release` is recognised."""
        path = self.package() / release.marker_file
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if path.is_file() else ""
        path.write_text(f"{before}{release.marker_text}\n")

    def run(self, script: str) -> Any:
        """What `script` prints as JSON."""
        process = subprocess.run(
            # -S leaves site-packages out, -E the environment that tests run in; the current folder is on the path.
            [sys.executable, "-S", "-E", "-c", script],
            cwd=self.site,
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    def imported(self) -> dict[str, Any]:
        return self.run(IMPORT)  # type: ignore[no-any-return]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("installed", "adapter"),
    [
        ("0.7.1", "0.7.1"),
        ("0.7.2", "0.7.2"),
        ("0.7.2.post1", "0.7.2.post1"),
        ("0.7.3", "0.7.3"),
        ("0.7.4", "0.7.4"),
        # A local suffix says how the same source was built.
        ("0.7.2+cu130", "0.7.2"),
        ("0.7.2.post1+cu130.torch2.13", "0.7.2.post1"),
        # Other spellings of the same version.
        ("0.7.4.0", "0.7.4"),
        ("0.7.2-1", "0.7.2.post1"),
    ],
)
def test_known_release(machine: Machine, installed: str, adapter: str) -> None:
    machine.package()
    machine.distribution(installed)
    assert machine.imported() == {"installed": installed, "adapter": adapter, "warnings": []}


@pytest.mark.parametrize(
    ("installed", "adapter"),
    [
        # PEP 440 sorts these before the release they lead to.
        ("0.7.2rc6", "0.7.1"),
        ("0.7.2.post1.dev3", "0.7.2"),
        ("0.7.4.dev1", "0.7.3"),
        ("0.7.4rc1+cu130", "0.7.3"),
        # Newer than its own adapter, older than the next.
        ("0.7.1.post1", "0.7.1"),
        ("0.7.2.post2", "0.7.2.post1"),
        # Newer than all; as text, 0.7.10 would sort before 0.7.2.
        ("0.7.5", "0.7.4"),
        ("0.7.10", "0.7.4"),
        ("0.8.0", "0.7.4"),
        ("1!0.1", "0.7.4"),
    ],
)
def test_unknown_release_takes_the_nearest_older_adapter_and_warns_once(
    machine: Machine, installed: str, adapter: str
) -> None:
    machine.package()
    machine.distribution(installed)
    outcome = machine.imported()
    assert (outcome["installed"], outcome["adapter"]) == (installed, adapter)
    ((category, message, filename),) = outcome["warnings"]
    assert category == "CompatWarning"
    assert f"does not know FlashInfer {installed};" in message
    assert f"the adapter for {adapter}," in message
    assert SUPPORTED in message
    assert filename == "<string>", "the warning points at the import"


@pytest.mark.parametrize(
    "installed", ["0.7.0.post1", "0.7.0", "0.6.18", "0.7.1rc2", "0.7.1.dev3", "0.0.1", "nightly", "0.0.0+unknown"]
)
def test_refused_by_name(machine: Machine, installed: str) -> None:
    machine.package()
    machine.distribution(installed)
    outcome = machine.imported()
    assert (outcome["error"], outcome["import_error"], outcome["warnings"]) == ("UnsupportedRelease", True, [])
    assert f"FlashInfer {installed} " in outcome["message"].replace("'", "")
    assert SUPPORTED in outcome["message"]
    assert WHAT_TO_INSTALL in outcome["message"]


def test_a_refused_import_is_refused_again(machine: Machine) -> None:
    machine.distribution("0.6.18")
    guarded = "try:\n    import flashinfer_compat\nexcept ImportError:\n    pass\n"
    assert machine.run(guarded + IMPORT)["error"] == "UnsupportedRelease"


@pytest.mark.parametrize("version", ["0.0.0+unknown", "0.0.0", "0.0.0.dev0+g1234567", None])
@pytest.mark.parametrize("release", adapters.RELEASES, ids=lambda release: release.version)
def test_a_build_without_a_version_is_recognised_by_its_source(
    machine: Machine, release: adapters.Release, version: str | None
) -> None:
    # A release carries the markers of all before it.
    for older_or_same in adapters.RELEASES[: adapters.RELEASES.index(release) + 1]:
        machine.marker(older_or_same)
    if version is not None:
        machine.distribution(version)
    assert machine.imported() == {
        "installed": version or "0.0.0+unknown",
        "adapter": release.version,
        "warnings": [],
    }


def test_a_source_without_a_marker_is_refused(machine: Machine) -> None:
    (machine.package() / "prefill.py").write_text("# as in 0.7.0\n")
    outcome = machine.imported()
    assert outcome["error"] == "UnsupportedRelease"
    assert "FlashInfer 0.0.0+unknown does not say its version" in outcome["message"]
    assert WHAT_TO_INSTALL in outcome["message"]


def test_an_editable_build_is_found_through_its_import_hook(machine: Machine) -> None:
    machine.distribution("0.0.0+unknown")
    for release in adapters.RELEASES[:2]:
        machine.marker(release)
    checkout = machine.site / "checkout"
    checkout.mkdir()
    (machine.site / "flashinfer").rename(checkout / "flashinfer")
    hook = """
import sys
from importlib.machinery import PathFinder
class Editable:
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, ["checkout"]) if name == "flashinfer" else None
sys.meta_path.append(Editable)
"""
    assert machine.run(hook + IMPORT)["adapter"] == "0.7.2"


@pytest.mark.parametrize(
    ("distributions", "adapter"),
    [
        ({"flashinfer": "0.7.2"}, "0.7.2"),
        # The old name may be left over from an update; the present one counts, whichever is newer.
        ({"flashinfer": "0.6.18", "flashinfer-python": "0.7.4"}, "0.7.4"),
        ({"flashinfer": "0.7.4", "flashinfer-python": "0.7.1"}, "0.7.1"),
    ],
)
def test_both_names_of_the_distribution(machine: Machine, distributions: dict[str, str], adapter: str) -> None:
    machine.package()
    for name, version in distributions.items():
        machine.distribution(version, name)
    assert machine.imported() == {
        "installed": adapter,
        "adapter": adapter,
        "warnings": [],
    }


def test_metadata_without_a_version_counts_as_none(machine: Machine) -> None:
    (machine.site / "flashinfer_python-0.7.4.dist-info").mkdir()
    machine.distribution("0.7.2", "flashinfer")
    machine.package()
    assert machine.imported()["adapter"] == "0.7.2"


def test_files_left_behind_by_an_uninstall_are_no_flashinfer(machine: Machine) -> None:
    (machine.site / "flashinfer" / "data").mkdir(parents=True)
    assert machine.imported() == {"installed": None, "adapter": None, "warnings": []}


# Without FlashInfer.


def raised(machine: Machine, statement: str) -> tuple[list[str], str]:
    """The names of the classes of what `statement` raises, and its message."""
    indented = statement.replace("\n", "\n    ")
    names, message = machine.run(
        f"import json, flashinfer_compat\ntry:\n    {indented}\nexcept Exception as error:\n"
        "    print(json.dumps([[cls.__name__ for cls in type(error).__mro__], str(error)]))"
    )
    return names, message


@pytest.mark.parametrize(
    ("statement", "bases"),
    [
        ("flashinfer_compat.norm", ["FeatureUnavailable", "CompatError", "AttributeError"]),
        ("flashinfer_compat.__version__", ["FeatureUnavailable", "CompatError", "AttributeError"]),
        ("flashinfer_compat.no_such_name", ["FeatureUnavailable", "CompatError", "AttributeError"]),
        ("flashinfer_compat.require('prefill.uniform_q_len')", ["FeatureUnavailable", "CompatError"]),
        ("from flashinfer_compat import rmsnorm", ["UnsupportedRelease", "CompatError", "ImportError"]),
        ("from flashinfer_compat.prefill import x", ["UnsupportedRelease", "CompatError", "ImportError"]),
        ("import flashinfer_compat.comm.mapping", ["UnsupportedRelease", "CompatError", "ImportError"]),
        (
            "import importlib.util\nimportlib.util.find_spec('flashinfer_compat.comm.mapping')",
            ["UnsupportedRelease", "CompatError", "ImportError"],
        ),
    ],
)
def test_using_what_is_not_installed_says_what_to_install(machine: Machine, statement: str, bases: list[str]) -> None:
    names, message = raised(machine, statement)
    assert names[: len(bases)] == bases
    assert NOTHING_INSTALLED in message
    assert SUPPORTED in message
    assert WHAT_TO_INSTALL in message


def test_without_flashinfer_the_guards_of_engines_hold(machine: Machine) -> None:
    assert machine.run("""
import json, flashinfer_compat
print(json.dumps([
    flashinfer_compat.flashinfer_version,
    hasattr(flashinfer_compat, "norm"),
    hasattr(flashinfer_compat, "__version__"),
    getattr(flashinfer_compat, "rmsnorm", "absent"),
]))
""") == [None, False, False, "absent"]


def test_without_flashinfer_the_features_are_reported(machine: Machine) -> None:
    report, supports, explanation = machine.run("""
import json, flashinfer_compat
print(json.dumps([
    flashinfer_compat.report(),
    flashinfer_compat.supports("prefill.uniform_q_len"),
    flashinfer_compat.explain("prefill.uniform_q_len"),
]))
""")
    assert (report["flashinfer"], report["adapter"], report["inferred"]) == (None, None, False)
    assert set(report["features"].values()) == {"unavailable"}
    assert supports == "unavailable"
    assert explanation.startswith("prefill.uniform_q_len: unavailable.")
    assert WHAT_TO_INSTALL in explanation


def test_without_flashinfer_the_names_of_our_own_are_listed_and_no_others(machine: Machine) -> None:
    listed = machine.run("""
import json, flashinfer_compat
from flashinfer_compat import *
print(json.dumps(dir(flashinfer_compat)))
""")
    assert listed == [
        "CompatError",
        "CompatWarning",
        "FeatureUnavailable",
        "InvalidArgument",
        "InvalidPlan",
        "RoundError",
        "Support",
        "UnsupportedArgument",
        "UnsupportedCombination",
        "UnsupportedRelease",
        "explain",
        "flashinfer_version",
        "include_dirs",
        "patch",
        "report",
        "require",
        "supports",
        "unpatch",
        "use_reference",
    ]


# Side effects.

SIDE_EFFECTS = """
import json, os, sys, threading, warnings
warnings.simplefilter("error")
before = set(sys.modules), dict(os.environ), list(sys.path), list(sys.meta_path), list(warnings.filters)
import flashinfer_compat
new = {name.partition(".")[0] for name in set(sys.modules) - before[0]} - set(sys.stdlib_module_names)
print(json.dumps({
    "modules": sorted(new),
    "environment": os.environ == before[1],
    "path": sys.path == before[2],
    "finders": [type(finder).__name__ for finder in sys.meta_path if finder not in before[3]],
    "finder_is_last": type(sys.meta_path[-1]).__name__,
    "warning_filters": warnings.filters == before[4],
    "threads": [thread.name for thread in threading.enumerate()],
    "cuda": "libcuda" in open("/proc/self/maps").read() if sys.platform == "linux" else False,
}))
"""


@pytest.mark.parametrize("version", ["0.7.1", "0.7.4", None])
def test_importing_the_facade_has_no_side_effects(machine: Machine, version: str | None) -> None:
    if version is not None:
        machine.package()
        machine.distribution(version)
    assert machine.run(SIDE_EFFECTS) == {
        "modules": ["flashinfer_compat"],
        "environment": True,
        "path": True,
        "finders": ["_Finder"],
        "finder_is_last": "_Finder",
        "warning_filters": True,
        "threads": ["MainThread"],
        "cuda": False,
    }


def test_releases_are_in_order_and_spelled_as_published() -> None:
    assert [release.version for release in adapters.RELEASES] == ["0.7.1", "0.7.2", "0.7.2.post1", "0.7.3", "0.7.4"]
    assert selection.NEWEST == "0.7.4"
    assert selection.SUPPORTED == SUPPORTED

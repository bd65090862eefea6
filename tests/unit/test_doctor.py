"""`doctor` on made-up site-packages folders, and on the METADATA of the real wheel where one is installed."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("elftools", reason="the command line is an extra: pip install flashinfer-compat[cli]")
testing = pytest.importorskip("click.testing", reason="the command line is an extra")

from flashinfer_compat.cli import main  # noqa: E402
from flashinfer_compat.doctor import jit_cache  # noqa: E402
from flashinfer_compat.doctor.checks import CHECKS, examine  # noqa: E402
from flashinfer_compat.doctor.model import Finding, Machine, Outcome  # noqa: E402


def distribution(site: Path, name: str, version: str, *lines: str) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    text = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
    (folder / "METADATA").write_text(text + "\n", encoding="utf-8")


def file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def shared_library(path: Path, *names: str) -> None:
    """The smallest ELF file that asks for the libraries `names`."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    offsets = [strings.index(name.encode()) for name in names]
    dynamic = b"".join(struct.pack("<QQ", 1, offset) for offset in offsets) + struct.pack("<QQ", 0, 0)
    at = 64
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    sections_at = at + len(strings) + len(dynamic)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, sections_at, 0, 64, 0, 0, 64, 3, 1)
    section = "<IIQQQQIIQQ"
    sections = [
        struct.pack(section, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack(section, 0, 3, 0, 0, at, len(strings), 0, 0, 1, 0),
        struct.pack(section, 0, 6, 0, 0, at + len(strings), len(dynamic), 1, 0, 8, 16),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + strings + dynamic + b"".join(sections))


def machine(tmp_path: Path, python: str = "3.11.7", **environ: str) -> Machine:
    site = tmp_path / "site"
    site.mkdir(exist_ok=True)
    return Machine((str(site),), environ, tmp_path / "home", python, tmp_path / "no_cuda")


def said(check: str, at: Machine) -> list[Finding]:
    return list(CHECKS[check](at))


def problems(check: str, at: Machine) -> list[Finding]:
    return [finding for finding in said(check, at) if finding.outcome is Outcome.PROBLEM]


@pytest.mark.parametrize(
    ("version", "outcome"),
    [("0.7.1", "ok"), ("0.7.4+cu130", "ok"), ("0.7.0", "problem"), ("0.7.2rc1", "note"), ("0.8.0", "note")],
)
def test_release(tmp_path: Path, version: str, outcome: str) -> None:
    distribution(tmp_path / "site", "flashinfer-python", version)
    assert [finding.outcome for finding in said("release", machine(tmp_path))] == [outcome]


def test_no_flashinfer(tmp_path: Path) -> None:
    (finding,) = problems("release", machine(tmp_path))
    assert finding.fix == "pip install flashinfer-python==0.7.4"


def test_the_old_distribution_beside_the_new(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "flashinfer", "0.7.1")
    distribution(tmp_path / "site", "flashinfer-python", "0.7.4")
    (finding,) = problems("duplicates", machine(tmp_path))
    assert "flashinfer-python 0.7.4, flashinfer 0.7.1" in finding.what
    assert finding.fix.endswith("pip install flashinfer-python==0.7.4")


COMPANIONS = [
    ("0.7.4", "flashinfer-cubin", "0.7.4", ""),
    ("0.7.4", "flashinfer-cubin", "0.7.2", "0.7.2 does not match FlashInfer 0.7.4"),
    ("0.7.4", "flashinfer-cubin", "0.7.4+cu130", "compares the texts"),
    ("0.7.4+cu130", "flashinfer-cubin", "0.7.4", "compares the texts"),
    ("0.7.4", "flashinfer-jit-cache", "0.7.4+cu130", ""),
    ("0.7.2", "flashinfer-jit-cache", "0.7.2.post1+cu130", "does not match"),
    ("0.7.4", "flashinfer-jit-cache-sm90a", "0.7.4+cu130", "flashinfer-jit-cache not installed"),
]


@pytest.mark.parametrize(("flashinfer", "name", "version", "expected"), COMPANIONS)
def test_companions(tmp_path: Path, flashinfer: str, name: str, version: str, expected: str) -> None:
    distribution(tmp_path / "site", "flashinfer-python", flashinfer)
    distribution(tmp_path / "site", name, version)
    found = problems("companions", machine(tmp_path))
    assert [expected in finding.what and bool(finding.fix) for finding in found] == ([True] if expected else [])


@pytest.mark.parametrize(
    ("source", "effect"),
    [
        (
            'def _get_cubin_dir():\n    raise RuntimeError("…")\ndef _get_aot_providers(): ...',
            "import flashinfer fails",
        ),
        ('    logger.warning("Ignoring incompatible flashinfer-cubin package")', "ignored with a warning"),
    ],
)
def test_what_a_mismatch_does_is_read_from_the_release(tmp_path: Path, source: str, effect: str) -> None:
    distribution(tmp_path / "site", "flashinfer-python", "0.7.4")
    distribution(tmp_path / "site", "flashinfer-cubin", "0.7.2")
    file(tmp_path / "site" / "flashinfer/jit/env.py", source)
    assert effect in problems("companions", machine(tmp_path))[0].what


def test_the_check_disabled_over_a_mismatch(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "flashinfer-python", "0.7.4")
    distribution(tmp_path / "site", "flashinfer-cubin", "0.7.2")
    assert not said("version-check", machine(tmp_path))
    # Any text disables: FlashInfer asks only whether it is empty.
    (finding,) = problems("version-check", machine(tmp_path, FLASHINFER_DISABLE_VERSION_CHECK="0"))
    assert "unset FLASHINFER_DISABLE_VERSION_CHECK" in finding.fix


def test_the_check_disabled_over_nothing_is_noted(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "flashinfer-python", "0.7.4")
    (finding,) = said("version-check", machine(tmp_path, FLASHINFER_DISABLE_VERSION_CHECK="1"))
    assert finding.outcome is Outcome.NOTE


@pytest.mark.parametrize(("cuda", "wrong"), [("'13.0'", False), ("'12.9'", True), ("None", True)])
def test_cuda_suffix_against_torch(tmp_path: Path, cuda: str, wrong: bool) -> None:
    distribution(tmp_path / "site", "flashinfer-jit-cache", "0.7.4+cu130")
    file(tmp_path / "site" / "torch/version.py", f"__version__ = '2.13.0'\ncuda: Optional[str] = {cuda}\n")
    assert bool(problems("cuda-suffix", machine(tmp_path))) is wrong


@pytest.mark.parametrize(("python", "wrong"), [("3.9.1", True), ("3.12.0", False), ("4.0.0", True)])
def test_python(tmp_path: Path, python: str, wrong: bool) -> None:
    distribution(tmp_path / "site", "flashinfer-python", "0.7.4", "Requires-Python: <4.0,>=3.10")
    assert bool(problems("python", machine(tmp_path, python))) is wrong


FLOORS = [
    ("nvidia-cutlass-dsl>=4.8.0", "4.7.1", "requires nvidia-cutlass-dsl>=4.8.0"),
    ("nvidia-cutlass-dsl>=4.6.2a0", "4.6.2a1", ""),
    ("apache-tvm-ffi<0.2,>=0.1.11", "0.2.0", "requires apache-tvm-ffi<0.2,>=0.1.11"),
    ("NVIDIA_ml.py", None, "NVIDIA_ml.py is not installed"),
    ('torch>=2.12.0; extra == "b12x"', None, ""),
]


@pytest.mark.parametrize(("required", "installed", "expected"), FLOORS)
def test_dependency_floors(tmp_path: Path, required: str, installed: str | None, expected: str) -> None:
    distribution(tmp_path / "site", "flashinfer-python", "0.7.4", f"Requires-Dist: {required}")
    if installed:
        distribution(tmp_path / "site", required.partition(">")[0].partition("<")[0], installed)
    found = problems("dependencies", machine(tmp_path))
    assert [expected in finding.what for finding in found] == ([True] if expected else [])


def test_split_cutlass_dsl(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "nvidia-cutlass-dsl", "4.8.0")
    distribution(tmp_path / "site", "nvidia-cutlass-dsl-libs-base", "4.8.0")
    assert not problems("cutlass-dsl", machine(tmp_path))
    distribution(tmp_path / "site", "nvidia-cutlass-dsl-libs-cu13", "4.7.1")
    (finding,) = problems("cutlass-dsl", machine(tmp_path))
    assert finding.fix.endswith('pip install "nvidia-cutlass-dsl[cu13]==4.8.0"')


def test_kernels_for_another_cuda(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "flashinfer-python", "0.7.4")
    file(tmp_path / "site" / "torch/version.py", "cuda: Optional[str] = '13.0'\n")
    cache = tmp_path / "home/.cache/flashinfer"
    shared_library(cache / "0.7.4/90a/cached_ops/page/page.so", "libcudart.so.13", "libc.so.6")
    shared_library(cache / "0.7.4/90a/cached_ops/norm/norm.so", "libcudart.so.12")
    file(cache / "0.7.4/90a/cached_ops/broken/broken.so", "not ELF")
    shared_library(tmp_path / "site/flashinfer_jit_cache/jit_cache/rope/rope.so", "libnvrtc.so.12")
    cached, packaged = problems("foreign-cuda", machine(tmp_path))
    assert "1 of 3 kernels" in cached.what
    assert cached.fix.endswith(f"rm -r {cache / '0.7.4/90a/cached_ops/norm'}")
    assert packaged.fix == "pip install flashinfer-jit-cache for cu130"
    assert (cache / "0.7.4/90a/cached_ops/norm/norm.so").is_file()


def test_needed_of_a_real_library() -> None:
    library = next((path for path in Path("/lib").rglob("libm.so.6")), None)
    if library is None:
        pytest.skip("no libm here")
    assert "libc.so.6" in jit_cache.needed(library)


def test_caches_of_other_releases_are_noted(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "flashinfer-python", "0.7.4")
    for version in ("0.7.2", "0.7.4", "cubins"):
        (tmp_path / "work/.cache/flashinfer" / version).mkdir(parents=True)
    (finding,) = said("stale-cache", machine(tmp_path, FLASHINFER_WORKSPACE_BASE=str(tmp_path / "work")))
    assert finding.outcome is Outcome.NOTE
    assert finding.what.endswith(": 0.7.2")


def test_cubin_folder(tmp_path: Path) -> None:
    assert not said("cubin-folder", machine(tmp_path))
    assert problems("cubin-folder", machine(tmp_path, FLASHINFER_CUBIN_DIR=str(tmp_path / "nowhere")))


@pytest.mark.parametrize(("release", "wrong"), [("13.0", False), ("12.9", True)])
def test_nvcc_against_torch(tmp_path: Path, release: str, wrong: bool) -> None:
    file(tmp_path / "site" / "torch/version.py", "cuda: Optional[str] = '13.0'\n")
    compiler = file(tmp_path / "cuda/bin/nvcc", f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V1'\n")
    compiler.chmod(0o755)
    assert bool(problems("nvcc", machine(tmp_path, CUDA_HOME=str(tmp_path / "cuda")))) is wrong


def test_no_toolchain(tmp_path: Path) -> None:
    assert problems("nvcc", machine(tmp_path, PATH=str(tmp_path)))
    assert problems("ninja", machine(tmp_path, PATH=str(tmp_path)))[0].fix == "pip install ninja"
    distribution(tmp_path / "site", "flashinfer-jit-cache", "0.7.4+cu130")
    (finding,) = said("nvcc", machine(tmp_path, PATH=str(tmp_path)))
    assert finding.outcome is Outcome.NOTE


def test_an_interrupted_uninstall_is_no_distribution(tmp_path: Path) -> None:
    (tmp_path / "site/flashinfer_python-0.7.1.dist-info").mkdir(parents=True)
    file(tmp_path / "site/torch-2.dist-info/METADATA", "")
    assert machine(tmp_path).distributions == {}
    assert "not installed" in problems("release", machine(tmp_path))[0].what


def test_the_real_wheel(tmp_path: Path) -> None:
    try:
        installed = metadata.distribution("flashinfer-python")
    except metadata.PackageNotFoundError:
        pytest.skip("no FlashInfer here")
    if not installed.requires:
        pytest.skip("another release's code, presented as this one")
    distribution(tmp_path / "site", "nvidia-cutlass-dsl", "4.5.0")
    text = installed.read_text("METADATA") or ""
    file(tmp_path / "site/flashinfer_python-1.dist-info/METADATA", text)
    found = problems("dependencies", machine(tmp_path))
    assert any("nvidia-cutlass-dsl 4.5.0; FlashInfer" in finding.what for finding in found)
    # Its unconditional requirements alone, each missing here.
    unconditional = [line for line in installed.requires or () if "extra" not in line]
    assert len(found) == len(unconditional)


def test_every_problem_has_a_fix_and_the_exit_code_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(finding.fix for _, finding in examine(machine(tmp_path)) if finding.outcome is not Outcome.OK)
    monkeypatch.setattr("flashinfer_compat.doctor.cli.Machine", lambda: machine(tmp_path))
    result = testing.CliRunner().invoke(main, ["doctor", "--format", "json"])
    told = json.loads(result.output)
    assert (result.exit_code, told["healthy"]) == (1, False)
    assert {"check", "outcome", "what", "fix"} == set(told["findings"][0])
    assert testing.CliRunner().invoke(main, ["doctor", "--format", "yaml"]).exit_code == 2
    assert "→ pip install flashinfer-python" in testing.CliRunner().invoke(main, ["doctor"]).output


def test_neither_flashinfer_nor_torch_is_imported() -> None:
    code = (
        "import sys\nfrom flashinfer_compat.doctor.checks import examine\n"
        "from flashinfer_compat.doctor.model import Machine\nexamine(Machine())\n"
        "assert not {'torch', 'flashinfer'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])

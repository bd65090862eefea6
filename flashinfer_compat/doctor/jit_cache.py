"""Compiled kernels: those in FlashInfer's cache folder and those of an installed flashinfer-jit-cache."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from .model import Finding, Machine, note, ok, problem

# libcudart.so.12, libnvrtc.so.13: the runtime libraries that bear CUDA's major version.
_RUNTIME = re.compile(r"^lib(?:cudart|nvrtc)\.so\.(\d+)")
#: Below it, as jit/env.py lays it out: VERSION/ARCHITECTURES/cached_ops/MODULE/MODULE.so
_FOLDER = Path(".cache") / "flashinfer"


def cache_folder(machine: Machine) -> Path:
    """FlashInfer's cache folder: below `FLASHINFER_WORKSPACE_BASE`, or the home directory."""
    return Path(machine.environ.get("FLASHINFER_WORKSPACE_BASE", machine.home)) / _FOLDER


def stale(machine: Machine) -> Iterator[Finding]:
    """Caches of other releases: FlashInfer never reads them, and never removes them."""
    installed = machine.flashinfer
    folders = [path for path in _children(cache_folder(machine)) if path.name[:1].isdigit() and path.name != installed]
    if folders:
        names = ", ".join(path.name for path in folders)
        yield note(
            f"{cache_folder(machine)} holds kernels of other releases: {names}",
            _remove(folders),
        )


def foreign_cuda(machine: Machine) -> Iterator[Finding]:
    """Kernels that this FlashInfer would load are linked to the CUDA that PyTorch brings."""
    cuda = machine.torch_cuda
    if cuda is None or machine.flashinfer is None:
        return
    folders = [cache_folder(machine) / machine.flashinfer, *machine.folders("flashinfer_jit_cache")]
    for folder in folders:
        libraries = sorted(folder.rglob("*.so"))
        foreign: dict[str, list[Path]] = {}
        for library in libraries:
            for major in _majors(needed(library)):
                if major != cuda.partition(".")[0]:
                    foreign.setdefault(major, []).append(library)
        for major, found in foreign.items():
            yield problem(
                f"{len(found)} of {len(libraries)} kernels in {folder} need CUDA {major}, PyTorch brings CUDA {cuda}",
                f"pip install flashinfer-jit-cache for cu{cuda.replace('.', '')}"
                if folder.name == "flashinfer_jit_cache"
                else f"they are compiled anew once removed: {_remove(path.parent for path in found)}",
            )
        if libraries and not foreign:
            yield ok(f"{len(libraries)} kernels in {folder}")


def cubin_folder(machine: Machine) -> Iterator[Finding]:
    """`FLASHINFER_CUBIN_DIR` points to a folder, and takes precedence over an installed flashinfer-cubin."""
    named = machine.variable("FLASHINFER_CUBIN_DIR")
    if not named:
        return
    if not Path(named).is_dir():
        yield problem(f"FLASHINFER_CUBIN_DIR={named} is no folder", "unset FLASHINFER_CUBIN_DIR, or create it")
    elif machine.version("flashinfer-cubin"):
        yield note(
            f"FLASHINFER_CUBIN_DIR={named} overrides the installed flashinfer-cubin", "unset FLASHINFER_CUBIN_DIR"
        )


def needed(library: Path) -> list[str]:
    """The libraries that an ELF file asks for (its ``DT_NEEDED``); none where it is not one that can be read."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    try:
        with library.open("rb") as stream:
            sections = ELFFile(stream).iter_sections()
            dynamic = next((section for section in sections if isinstance(section, DynamicSection)), None)
            return [str(tag.needed) for tag in dynamic.iter_tags("DT_NEEDED")] if dynamic else []
    except (OSError, ELFError):
        return []


def _remove(folders: Iterable[Path]) -> str:
    """The command for people to run: nothing here deletes."""
    return shlex.join(["rm", "-r", *map(str, folders)])


def _majors(libraries: Iterable[str]) -> set[str]:
    return {found[1] for name in libraries if (found := _RUNTIME.match(name))}


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []

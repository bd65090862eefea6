"""FlashInfer's own distributions: which are installed, whether they belong together, and to the installed PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from ..adapters import RELEASES
from ..selection import NEWEST, SUPPORTED
from .model import Finding, Machine, note, ok, problem

DISABLE_CHECK = "FLASHINFER_DISABLE_VERSION_CHECK"
_CUDA_SUFFIX = re.compile(r"\+cu(\d+)$")


def release(machine: Machine) -> Iterator[Finding]:
    """A FlashInfer that flashinfer_compat supports is installed."""
    installed = machine.flashinfer
    if installed is None:
        yield problem("FlashInfer is not installed", f"pip install flashinfer-python=={NEWEST}")
        return
    try:
        version = Version(installed)
    except InvalidVersion:
        yield problem(f"{installed!r} is not a PEP 440 version", f"pip install flashinfer-python=={NEWEST}")
        return
    public = Version(version.public)
    if public < Version(RELEASES[0].version) and version.release != (0, 0, 0):
        yield problem(
            f"FlashInfer {installed} is older than flashinfer_compat supports ({SUPPORTED})",
            f"pip install flashinfer-python=={NEWEST}",
        )
    elif all(public != Version(known.version) for known in RELEASES):
        yield note(
            f"FlashInfer {installed} is none of the known releases ({SUPPORTED})",
            "it runs on the nearest adapter; see: flashinfer-compat report",
        )
    else:
        yield ok(f"FlashInfer {installed}")


def duplicates(machine: Machine) -> Iterator[Finding]:
    """One distribution owns the ``flashinfer`` package: both names install it over each other."""
    owners = [
        f"{name} {one.version}"
        for name in ("flashinfer-python", "flashinfer")
        for one in machine.distributions.get(name, ())
    ]
    if len(owners) > 1:
        version = machine.flashinfer
        yield problem(
            f"{len(owners)} distributions own the flashinfer package: {', '.join(owners)}",
            f"pip uninstall -y flashinfer flashinfer-python && pip install flashinfer-python=={version}",
        )
    elif owners:
        yield ok("one distribution owns the flashinfer package")


def companions(machine: Machine) -> Iterator[Finding]:
    """flashinfer-cubin and flashinfer-jit-cache have FlashInfer's version, as its jit/env.py compares them: as text."""
    installed = machine.flashinfer
    if installed is None:
        return
    shim = machine.version("flashinfer-jit-cache")
    names = [name for name in sorted(machine.distributions) if name.startswith(("flashinfer-cubin", _JIT_CACHE))]
    if not names:
        yield note(
            "no flashinfer-cubin or flashinfer-jit-cache: kernels are compiled and cubins downloaded at first use",
            f"to avoid that: pip install flashinfer-cubin=={installed}, and flashinfer-jit-cache for your CUDA",
        )
    for name in names:
        version = machine.version(name) or ""
        local = name.startswith(_JIT_CACHE)
        fits = version == installed or (local and version.startswith(f"{installed}+"))
        if fits and name not in (_JIT_CACHE, "flashinfer-cubin") and version != shim:
            yield problem(
                f"{name} {version} is not of its shim's version, flashinfer-jit-cache {shim or 'not installed'}",
                f"install both from one index of wheels: pip install {name}=={version} {_JIT_CACHE}=={version}",
            )
        elif fits:
            yield ok(f"{name} {version}")
        else:
            same = _public(version) == _public(installed)
            reason = " (the same release, but FlashInfer compares the texts)" if same else ""
            yield problem(
                f"{name} {version} does not match FlashInfer {installed}{reason}: {_effect(machine)}",
                f"pip install {name}=={_public(installed)}, or pip uninstall {name}",
            )


def version_check(machine: Machine) -> Iterator[Finding]:
    """`FLASHINFER_DISABLE_VERSION_CHECK` hides no mismatch."""
    value = machine.variable(DISABLE_CHECK)
    if not value:
        return
    # Any text disables, "0" too: jit/env.py asks only whether it is empty.
    if any(finding.outcome == "problem" for finding in companions(machine)):
        yield problem(
            f"{DISABLE_CHECK}={value} makes FlashInfer load the mismatched kernels above",
            f"install matching versions, then: unset {DISABLE_CHECK}",
        )
    else:
        yield note(f"{DISABLE_CHECK}={value} would hide the next mismatch", f"unset {DISABLE_CHECK}")


def cuda_suffix(machine: Machine) -> Iterator[Finding]:
    """A ``+cuXYZ`` of FlashInfer's distributions is the CUDA major of the installed PyTorch."""
    for name in sorted(machine.distributions):
        if not name.startswith("flashinfer-"):
            continue
        version = machine.version(name) or ""
        suffix = _CUDA_SUFFIX.search(version)
        if suffix is None:
            continue
        major, cuda = suffix[1][:2], machine.torch_cuda
        if machine.file("torch/version.py") is None:
            continue
        if cuda is None:
            yield problem(
                f"{name} {version} is for CUDA, PyTorch is a build without", "install PyTorch's build for that CUDA"
            )
        elif cuda.partition(".")[0] != major:
            yield problem(
                f"{name} {version} is for CUDA {major}, PyTorch for CUDA {cuda}",
                f"pip install {name}=={_public(version)} from FlashInfer's index for cu{cuda.replace('.', '')}",
            )
        else:
            yield ok(f"{name} {version} is for PyTorch's CUDA {cuda}")


def python(machine: Machine) -> Iterator[Finding]:
    """This Python is one that FlashInfer's metadata allows."""
    for name in ("flashinfer-python", "flashinfer"):
        for distribution in machine.distributions.get(name, ())[:1]:
            wanted = distribution.metadata["Requires-Python"]
            if wanted and not SpecifierSet(wanted).contains(machine.python, prereleases=True):
                yield problem(
                    f"Python {machine.python}; {name} {distribution.version} requires {wanted}",
                    f"use a Python that satisfies {wanted}",
                )
            else:
                yield ok(f"Python {machine.python}")


_JIT_CACHE = "flashinfer-jit-cache"


def _public(version: str) -> str:
    return version.partition("+")[0]


def _effect(machine: Machine) -> str:
    """What the installed FlashInfer does with a mismatch; its source says, since a release changed it."""
    if machine.variable(DISABLE_CHECK):
        return f"it is loaded all the same ({DISABLE_CHECK})"
    source = machine.file("flashinfer/jit/env.py")
    if source is None:
        return "FlashInfer refuses or ignores it"
    ignores = "Ignoring incompatible" in source.read_text(encoding="utf-8").split("_get_aot_providers", 1)[0]
    if ignores:
        return "it is ignored with a warning, kernels are compiled or downloaded instead"
    return "import flashinfer fails"

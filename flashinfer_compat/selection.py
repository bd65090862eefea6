"""Installed distribution -> adapter, from package metadata alone: FlashInfer itself is never imported here."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from .adapters import RELEASES, Release
from .errors import CompatError, CompatWarning, UnsupportedRelease

# FlashInfer's name on the index today, then the one it had before; the newer wins where both are left installed.
DISTRIBUTIONS = ("flashinfer-python", "flashinfer")
NEWEST = RELEASES[-1].version
SUPPORTED = ", ".join(release.version for release in RELEASES)
WHAT_TO_INSTALL = f"Supported: {SUPPORTED}. Install one of them, for example: pip install flashinfer-python=={NEWEST}"


#: The environment variable that chooses what the facade runs on, and its values.
BACKEND_VARIABLE = "FLASHINFER_COMPAT_BACKEND"
FLASHINFER, REFERENCE = "flashinfer", "reference"


class Selection(NamedTuple):
    """The installed FlashInfer's version and the release whose adapter serves it; both None where there is none.

    With `reference` the contract runs in plain PyTorch, whatever is installed, and no adapter serves it.
    """

    installed: str | None
    release: Release | None
    reference: bool = False

    @property
    def backend(self) -> str | None:
        """What the facade runs on; None where there is no FlashInfer and nothing else was asked for."""
        return REFERENCE if self.reference else FLASHINFER if self.release else None


def installed_version() -> str | None:
    """The version of the installed FlashInfer, ``"0.0.0+unknown"`` for one without metadata, None for none."""
    for name in DISTRIBUTIONS:
        # Any of its files may be left over from an uninstall: a folder without METADATA has no version.
        with suppress(metadata.PackageNotFoundError, KeyError):
            if version := metadata.version(name):
                return version
    return "0.0.0+unknown" if package_directory() else None


def package_directory() -> Path | None:
    """Where the ``flashinfer`` package lies, found without importing it."""
    spec = find_spec("flashinfer")
    # Without an origin it is a namespace package: a folder of that name, left over from an uninstall.
    return Path(spec.origin).parent if spec and spec.origin else None


def select() -> Selection:
    """Choose the adapter for the installed FlashInfer.

    Exact releases have their own; a local suffix (``+cu130``) is ignored. Any other version takes the newest adapter
    that is not newer than it, in PEP 440's order, and says so once. A build without a version is recognised by its
    source. Older releases raise `UnsupportedRelease`. ``FLASHINFER_COMPAT_BACKEND=reference`` takes the reference.
    """
    installed = installed_version()
    backend = os.environ.get(BACKEND_VARIABLE, FLASHINFER) or FLASHINFER
    if backend == REFERENCE:
        return Selection(installed, None, reference=True)
    if backend != FLASHINFER:
        raise CompatError(f"{BACKEND_VARIABLE} is {backend!r}; it must be {FLASHINFER!r} or {REFERENCE!r}")
    if installed is None:
        return Selection(None, None)
    public = installed.partition("+")[0]
    for release in RELEASES:
        if release.version == public:
            return Selection(installed, release)
    return Selection(installed, _of_version(installed))


def _of_version(installed: str) -> Release:
    """The newest supported release that is not newer than `installed`, a version not spelled as in `RELEASES`."""
    from packaging.version import InvalidVersion, Version

    try:
        version = Version(Version(installed).public)
    except InvalidVersion as error:
        raise UnsupportedRelease(f"FlashInfer {installed!r} is not a PEP 440 version. {WHAT_TO_INSTALL}") from error
    if version.release == (0, 0, 0):
        return recognised(installed)
    candidates = [release for release in RELEASES if Version(release.version) <= version]
    if not candidates:
        raise UnsupportedRelease(f"FlashInfer {installed} is older than flashinfer_compat supports. {WHAT_TO_INSTALL}")
    release = candidates[-1]
    if Version(release.version) != version:
        warnings.warn(
            f"flashinfer_compat does not know FlashInfer {installed}; it runs on the adapter for {release.version}, "
            f"which looks at the installed signatures. Known: {SUPPORTED}.",
            CompatWarning,
            stacklevel=4,
        )
    return release


def recognised(installed: str) -> Release:
    """The newest release whose marker the installed source carries: for builds that do not know their version."""
    directory = package_directory()
    for release in reversed(RELEASES):
        source = directory / release.marker_file if directory else None
        if source is not None and source.is_file() and release.marker_text in source.read_text(encoding="utf-8"):
            return release
    raise UnsupportedRelease(
        f"FlashInfer {installed} does not say its version, and its source is none that is supported. {WHAT_TO_INSTALL}"
    )

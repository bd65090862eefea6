"""Surfaces of a few lines of source, through the recorder: a wheel is put together and read."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import ZipFile

from flashinfer_compat.surfaces.model import Surface
from flashinfer_compat.surfaces.recorder import record


def wheel(
    directory: Path, files: Mapping[str, str], *, version: str = "1.0", requires: Sequence[str] = (), python: str = ""
) -> Path:
    """A wheel with `files`, paths below ``flashinfer/`` -> source."""
    path = directory / f"flashinfer_python-{version}-py3-none-any.whl"
    metadata = [f"Name: flashinfer-python\nVersion: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    if python:
        metadata.append(f"Requires-Python: {python}")
    with ZipFile(path, "w") as archive:
        for name, source in {"__init__.py": "", **files}.items():
            archive.writestr(f"flashinfer/{name}", textwrap.dedent(source))
        archive.writestr(f"flashinfer_python-{version}.dist-info/METADATA", "\n".join(metadata) + "\n")
    return path


def surface_of(directory: Path, files: Mapping[str, str], **metadata: object) -> Surface:
    return record(wheel(directory, files, **metadata), processes=1)  # type: ignore[arg-type]

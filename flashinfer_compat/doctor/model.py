"""What the checks look at, and what they say."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name


class Outcome(str, Enum):
    """What a check found. Only a problem makes the machine unhealthy."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """One thing that a check says; a note or a problem comes with its `fix`."""

    outcome: Outcome
    what: str
    fix: str = ""

    def as_dict(self, check: str) -> dict[str, Any]:
        return {"check": check, **asdict(self), "outcome": str(self.outcome)}


def ok(what: str) -> Finding:
    return Finding(Outcome.OK, what)


def note(what: str, fix: str) -> Finding:
    return Finding(Outcome.NOTE, what, fix)


def problem(what: str, fix: str) -> Finding:
    return Finding(Outcome.PROBLEM, what, fix)


@dataclass(frozen=True)
class Machine:
    """A Python environment as files and variables; by default the one that runs this."""

    search_path: Sequence[str] = field(default_factory=lambda: tuple(sys.path))
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    home: Path = field(default_factory=Path.home)
    python: str = field(default_factory=platform.python_version)
    default_cuda_home: Path = Path("/usr/local/cuda")

    @cached_property
    def distributions(self) -> dict[str, list[metadata.Distribution]]:
        """Installed distributions by normalised name; the first of several is the one that Python reports."""
        found: dict[str, list[metadata.Distribution]] = {}
        for distribution in metadata.distributions(path=list(self.search_path)):
            # An interrupted uninstall leaves a folder without METADATA, or with an empty one.
            said = distribution.metadata
            if said is not None and said["Name"] and said["Version"]:
                found.setdefault(canonicalize_name(said["Name"]), []).append(distribution)
        return found

    def version(self, name: str) -> str | None:
        """The installed version of a distribution, None where there is none."""
        found = self.distributions.get(name)
        return found[0].version if found else None

    @property
    def flashinfer(self) -> str | None:
        return self.version("flashinfer-python") or self.version("flashinfer")

    def file(self, relative: str) -> Path | None:
        """A file of an installed package, found without importing that."""
        candidates = (Path(entry or ".") / relative for entry in self.search_path)
        return next((path for path in candidates if path.is_file()), None)

    def folders(self, relative: str) -> Iterator[Path]:
        """The folders of that name in the environment."""
        return (path for entry in self.search_path if (path := Path(entry or ".") / relative).is_dir())

    @cached_property
    def torch_cuda(self) -> str | None:
        """The CUDA release that the installed PyTorch was built with, as its version.py says; None for a CPU build."""
        path = self.file("torch/version.py")
        found = re.search(r"^cuda\b[^=]*=\s*['\"]([\d.]+)", path.read_text(encoding="utf-8"), re.M) if path else None
        return found[1] if found else None

    def variable(self, name: str) -> str:
        return self.environ.get(name, "")

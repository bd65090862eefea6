"""The FlashInfer release that a source tree declares: in its wheel's metadata, project file or requirements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from .files import Listed, Skipped, read

_LINE = re.compile(r"""flashinfer[-_]python(?:\[[^\]]*\])?\s*(?:[=<>!~]=?[^"'\n#;]*)?""", re.IGNORECASE)


@dataclass(frozen=True)
class Declared:
    """A requirement on flashinfer-python, and where it is written."""

    requirement: Requirement
    path: str
    line: int

    def allows(self, version: str) -> bool:
        return self.requirement.specifier.contains(version, prereleases=True)


def declared(files: Iterable[Listed], skipped: list[Skipped]) -> list[Declared]:
    """The requirements found, a wheel's own metadata first."""
    found: list[Declared] = []
    for file in sorted(files, key=lambda one: (not one.name.endswith("METADATA"), one.name)):
        source = read(file.path, skipped)
        if source is not None:
            found += _in_text(file.path, source.decode("utf-8", "replace"))
    return found


def _in_text(path: str, text: str) -> Iterator[Declared]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#"):
            continue
        for match in _LINE.finditer(line):
            requirement = _requirement(match[0].strip().rstrip(","))
            if requirement is not None and requirement.specifier:
                yield Declared(requirement, path, number)


def _requirement(text: str) -> Requirement | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    return requirement if canonicalize_name(requirement.name) == "flashinfer-python" else None


def pinned(found: Iterable[Declared], versions: Iterable[str]) -> str | None:
    """The newest release that the first requirement allows that allows any."""
    ordered = sorted(versions, key=Version, reverse=True)
    for one in found:
        allowed = [version for version in ordered if one.allows(version)]
        if allowed:
            return allowed[0]
    return None

"""What a source tree declares: the FlashInfer release that it wants, and dependencies that FlashInfer has too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from . import findings
from .files import Listed, Skipped, read
from .findings import WORKS, Effect, Finding, Outcome

FLASHINFER = "flashinfer-python"
_LINE = re.compile(
    r"""(?<![\w.-])([A-Za-z][\w.-]*[A-Za-z0-9])\s*(?:\[[^\]\n]*\])?\s*\(?((?:[=<>!~]=?|===)\s*[\w.*+!-]+(?:\s*,\s*[=<>!~]=?\s*[\w.*+!-]+)*)"""
)
#: A first release of a kind, where a specifier names none that could be tried.
_SOME = ("0", "1000")


@dataclass(frozen=True)
class Declared:
    """A requirement, and where it is written."""

    requirement: Requirement
    path: str
    line: int

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    def allows(self, version: str) -> bool:
        return self.requirement.specifier.contains(version, prereleases=True)


def is_declaration(name: str) -> bool:
    """Whether a file of that name declares requirements."""
    base = name.rpartition("/")[2]
    return base in ("pyproject.toml", "setup.py", "setup.cfg", "METADATA") or (
        base.startswith("requirements") and base.endswith((".txt", ".in"))
    )


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
            try:
                yield Declared(Requirement(f"{match[1]}{match[2]}"), path, number)
            except InvalidRequirement:
                continue


def pinned(found: Iterable[Declared], versions: Iterable[str]) -> str | None:
    """The newest release that a requirement on FlashInfer allows, the first that allows any; else the nearest."""
    ordered = sorted(versions, key=Version, reverse=True)
    wanted = [one for one in found if one.name == FLASHINFER]
    for one in wanted:
        allowed = [version for version in ordered if one.allows(version)]
        if allowed:
            return allowed[0]
    named = [Version(spec.version.removesuffix(".*")) for one in wanted for spec in one.requirement.specifier]
    return ordered[-1] if named and max(named) < Version(ordered[-1]) else None


def clashes(found: Iterable[Declared], requires: Mapping[str, Iterable[str]], written_for: str) -> Iterator[Finding]:
    """Requirements of the source that leave no version over which a release of FlashInfer takes, by release."""
    floors: dict[str, dict[str, SpecifierSet]] = {}
    for release, texts in requires.items():
        for text in texts:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                floors.setdefault(canonicalize_name(requirement.name), {})[release] = requirement.specifier
    told = set()
    for one in found:
        outcomes = {
            release: Outcome(Effect.BREAKS, f"FlashInfer {release} wants {one.name}{floor}")
            for release, floor in floors.get(one.name, {}).items()
            if not _together(one.requirement.specifier, floor)
        }
        # What clashes with the release that the source is written for is no requirement of the same environment.
        if outcomes and written_for not in outcomes and str(one.requirement) not in told:
            told.add(str(one.requirement))
            every = {release: outcomes.get(release, WORKS) for release in requires}
            yield Finding(findings.CLASH, one.path, one.line, 1, str(one.requirement), every)


def _together(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Whether some version satisfies both; only those around the ones that they name need be tried."""
    tried: set[str] = set(_SOME)
    for specifier in (*one, *other):
        text = specifier.version.removesuffix(".*")
        try:
            release = Version(text).release
        except InvalidVersion:
            return True
        tried |= {text, ".".join(map(str, (*release, 1))), f"{text}.post1" if "post" not in text else text}
        tried.add(".".join(map(str, (*release[:-1], release[-1] + 1))))
        if release[-1]:
            tried.add(".".join(map(str, (*release[:-1], release[-1] - 1, 999))))
    both = one & other
    return any(both.contains(version, prereleases=True) for version in tried)

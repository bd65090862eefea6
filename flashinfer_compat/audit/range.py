"""The releases that an engine's sources run on, as a requirement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .audited import SUPPORTED, Audited
from .findings import Finding
from .requirement import FLASHINFER


@dataclass(frozen=True)
class Range:
    """An engine, audited for all supported releases."""

    name: str
    audited: Audited

    def runs_on(self, *, facade: bool) -> list[str]:
        """The releases on which nothing breaks, is off or fails later."""
        return [release for release in SUPPORTED if not self.audited.failing(release, facade=facade)]

    def as_dict(self) -> dict[str, object]:
        native, with_facade = self.runs_on(facade=False), self.runs_on(facade=True)
        return {
            "engine": self.name,
            "written_for": self.audited.written_for,
            "declared": [str(one.requirement) for one in self.audited.declared],
            "native": {"releases": native, "specifier": specifier(native)},
            "facade": {"releases": with_facade, "specifier": specifier(with_facade)},
            "broken": {release: len(self.audited.failing(release)) for release in SUPPORTED},
            "left_with_facade": {release: len(self.audited.failing(release, facade=True)) for release in SUPPORTED},
            "unresolved": len(self.audited.unresolved),
        }


def specifier(releases: list[str]) -> str:
    """A requirement that allows `releases`, a part of the supported ones in their order; "" of none."""
    if not releases:
        return ""
    if len(releases) == 1:
        return f"{FLASHINFER}=={releases[0]}"
    between = SUPPORTED[SUPPORTED.index(releases[0]) : SUPPORTED.index(releases[-1]) + 1]
    without = [f"!={release}" for release in between if release not in releases]
    return f"{FLASHINFER}>={releases[0]},<={releases[-1]}" + "".join(f",{one}" for one in without)


def keep_apart(ranges: Iterable[Range], *, facade: bool) -> Iterator[tuple[str, Finding, list[str]]]:
    """The uses for which an engine cannot have a release: engine, use, releases."""
    for one in ranges:
        for finding in one.audited.findings:
            releases = [release for release in SUPPORTED if finding.fails_on(release, facade=facade)]
            if releases:
                yield one.name, finding, releases

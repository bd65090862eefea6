"""Public and engine-used names that some supported releases have and others lack: which, without opening a surface."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

FILE = "lifetimes.json"


@dataclass(frozen=True)
class Lifetime:
    """The recorded `releases` that have a name, all those that were looked at, and where it is after it has `moved`."""

    releases: tuple[str, ...]
    among: tuple[str, ...]
    moved: str | None = None

    def __str__(self) -> str:
        first, last = self.releases[0], self.releases[-1]
        if last == self.among[-1]:
            return f"FlashInfer {first} and later have it"
        return f"FlashInfer {first} has it" if first == last else f"FlashInfer {first} to {last} have it"

    @property
    def instead(self) -> str:
        """What to do on a release that lacks it."""
        if self.moved:
            return f"Use {self.moved}."
        if self.releases[-1] == self.among[-1]:
            return "Install one of them, or do without: hasattr() is False here, and supports() says unavailable."
        return "It is gone upstream, and nothing replaces it."


def lifetime(dotted: str) -> Lifetime | None:
    """Of a module or name below ``flashinfer``; None of one that all supported releases have, or none."""
    table = _table()
    releases = table["names"].get(dotted)
    if releases is None:
        return None
    among = tuple(table["releases"])
    has = tuple(release for release, flag in zip(among, releases, strict=True) if flag == "1")
    return Lifetime(has, among, table["moved"].get(dotted))


def encoded(among: list[str], names: Mapping[str, list[str]], moved: Mapping[str, str]) -> str:
    """The file's text: `names` with the releases that have them, grouped by these."""
    groups: dict[str, list[str]] = {}
    for name, releases in sorted(names.items()):
        groups.setdefault("".join(str(int(release in releases)) for release in among), []).append(name)
    return json.dumps({"releases": among, "moved": dict(sorted(moved.items())), "names": groups}, indent=1) + "\n"


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads((files(__package__) / "data" / FILE).read_text(encoding="utf-8"))
    table["names"] = {name: flags for flags, names in table["names"].items() for name in names}
    return table

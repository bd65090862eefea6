"""Writes the page "What differs, release by release" while the site is built, from the adapters and the surfaces."""

from __future__ import annotations

import json
from collections.abc import Iterator

import mkdocs_gen_files

from flashinfer_compat.adapters import RELEASES
from flashinfer_compat.outcomes import Row, families
from flashinfer_compat.support import Support
from flashinfer_compat.surfaces import lifetimes

VERSIONS = [release.version for release in RELEASES]
INFERRED = {release.version for release in RELEASES if release.adapter.inferred}
INTRODUCTION = """# What differs, release by release

Each name and parameter that the facade does not simply pass on, and what it is on each FlashInfer release: **native**
(the release's own), *emulated* (the same result by another route), *ignored* (a hint about speed, accepted),
~~unavailable~~ (our error, before anything is launched), or – where the release has not even the function or class. A
release marked * is inferred from its neighbours: it is on no package index. This page is made from the adapters' tables
when the site is built; `flashinfer_compat.explain(name)` says the same of the release that is installed.

"""
MARKS = {
    Support.NATIVE: "**native**",
    Support.EMULATED: "*emulated*",
    Support.IGNORED: "*ignored*",
    Support.UNAVAILABLE: "~~unavailable~~",
    None: "–",
}


def page() -> Iterator[str]:
    yield INTRODUCTION
    heads = [f"{version}\\*" if version in INFERRED else version for version in VERSIONS]
    for family, rows in families():
        yield f"## {family}\n\n"
        yield f"| | {' | '.join(heads)} | how |\n|---|{'---|' * len(VERSIONS)}---|\n"
        yield from (line(row, family) for row in rows)
        yield "\n"
    yield from names()


def line(row: Row, family: str) -> str:
    outcomes = " | ".join(MARKS[row.outcomes[version]] for version in VERSIONS)
    name, note = row.name.removeprefix(f"{family}."), row.note.replace("|", r"\|")
    return f"| `{name}` | {outcomes} | {note} |\n"


def names() -> Iterator[str]:
    """Names that not all releases have and that no line supplies."""
    table = json.loads((lifetimes.files("flashinfer_compat.surfaces") / "data" / lifetimes.FILE).read_text())
    adapted = set(RELEASES[0].adapter.names)
    yield (
        "## Names that not every release has\n\nReading one on a release without it raises `FeatureUnavailable` (an "
        "`ImportError` from an import), which says which releases have it.\n\n"
    )
    for flags, several in sorted(table["names"].items(), reverse=True):
        having = [release for release, flag in zip(table["releases"], flags, strict=True) if flag == "1"]
        lived = lifetimes.Lifetime(tuple(having), tuple(table["releases"]))
        listed = ", ".join(f"`{name}`" for name in several if name not in adapted)
        yield f'??? note "{lived} ({len(several)} names)"\n\n    {listed}\n\n'


with mkdocs_gen_files.open("differences.md", "w") as file:
    file.writelines(page())

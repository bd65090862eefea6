"""A list of breakages as text for a terminal, as JSON or as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from .breakages import Breakage, Severity

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS = {
    Severity.EVERY_USE: "Every use fails",
    Severity.SOME_CALLS: "Some calls fail or bind differently",
    Severity.MEANING: "Runs, perhaps with another result",
    Severity.NONE: "Runs as before",
}


def as_json(old: str, new: str, found: Iterable[Breakage]) -> str:
    return json.dumps({"old": old, "new": new, "breakages": [one.as_dict() for one in found]}, indent=2)


def as_markdown(old: str, new: str, found: Sequence[Breakage]) -> str:
    lines = [f"# FlashInfer {old} → {new}", ""]
    for severity, group in groupby(found, key=lambda one: one.severity):
        lines += [f"## {HEADINGS[severity]}", ""]
        lines += [f"- `{one.symbol}`: {_escaped(one.sentence())}{_doubt(one)}" for one in group]
        lines.append("")
    return "\n".join(lines if found else [*lines, "No difference."]).rstrip() + "\n"


def as_tables(found: Sequence[Breakage]) -> list[Table]:
    """A rich table for each severity."""
    from rich.table import Table
    from rich.text import Text

    tables = []
    for severity, group in groupby(found, key=lambda one: one.severity):
        table = Table(title=HEADINGS[severity], title_justify="left", show_header=False, box=None)
        for one in group:
            table.add_row(Text(one.symbol, overflow="fold"), Text(f"{one.sentence()}{_doubt(one)}"))
        tables.append(table)
    return tables


def _doubt(one: Breakage) -> str:
    return "" if one.provenance == "known" else f" ({one.provenance})"


def _escaped(text: str) -> str:
    """Markdown reads ``<…>`` and ``*`` as its own."""
    return text.replace("<", "\\<").replace("*", "\\*")

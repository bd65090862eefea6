"""A list of breakages as text for a terminal, as JSON or as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby

from .breakages import Breakage, Severity

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


def print_tables(old: str, new: str, found: Sequence[Breakage]) -> None:
    """A table for each severity, on the terminal; needs `rich`, of the extra ``cli``."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for severity, group in groupby(found, key=lambda one: one.severity):
        table = Table(title=HEADINGS[severity], title_justify="left", show_header=False, box=None)
        for one in group:
            cells = one.symbol, f"{one.sentence()}{_doubt(one)}"
            table.add_row(*(Text(cell, overflow="fold") for cell in cells))
        console.print(table)
    console.print(f"FlashInfer {old} → {new}: {len(found)} difference{'' if len(found) == 1 else 's'}")


def _doubt(one: Breakage) -> str:
    return "" if one.provenance == "known" else f" ({one.provenance})"


def _escaped(text: str) -> str:
    """Markdown reads ``<…>`` and ``*`` as its own."""
    return text.replace("<", "\\<").replace("*", "\\*")

"""Recorded surfaces as package data: a release's file holds what differs from the release recorded before it.

A file is xz-compressed text: a header, then one JSON line for each module and C++ file, in order; a line that holds
only the name stands for the base's line of that name. So a file never changes once its release is recorded.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files

from ..errors import CompatError
from .model import Metadata, Surface, json_line

FORMAT = 1
#: The recorded releases, oldest first; each one's base is the one before it.
RECORDED = ("0.7.0", "0.7.0.post1", "0.7.1", "0.7.2", "0.7.2.post1", "0.7.4")
#: Known from its neighbours and from what upstream states: see `derived`.
DERIVED = ("0.7.3",)


class UnknownSurface(CompatError, LookupError):
    """A release whose surface is not recorded."""


def open_surface(release: str) -> Surface:
    """The recorded (or, for 0.7.3, derived) surface of a release. Raises `UnknownSurface` for others."""
    if release in DERIVED:
        from .derived import derive

        return derive(release)
    return _recorded(release)


@cache
def _recorded(release: str) -> Surface:
    if release not in RECORDED:
        known = ", ".join((*RECORDED, *DERIVED))
        raise UnknownSurface(
            f"The surface of FlashInfer {release} is not recorded. Recorded: {known}. "
            f"Record it from its wheel: flashinfer-compat record {release}"
        )
    return read((files(__package__) / "data" / file_name(release)).read_bytes(), _recorded)


def file_name(release: str) -> str:
    return f"{release}.jsonl.xz"


def base_of(release: str) -> str | None:
    """The release on which a recorded one's file builds; None for the first and for one that is not recorded."""
    position = RECORDED.index(release) if release in RECORDED else 0
    return RECORDED[position - 1] if position else None


def write(surface: Surface, base: Surface | None = None) -> bytes:
    """The file of `surface`, as the difference from `base` if that is given."""
    metadata = surface.metadata.encoded()
    header = {"format": FORMAT, "base": base.version if base else None, **metadata}
    text = [json.dumps(header, ensure_ascii=False, separators=(",", ":"))]
    for key, line in surface.lines.items():
        same = base is not None and base.lines.get(key) == line
        text.append(json_line([key]) if same else line)
    return lzma.compress("\n".join(text).encode(), check=lzma.CHECK_CRC32, preset=6)


def read(data: bytes, opened: Callable[[str], Surface] = _recorded) -> Surface:
    """The surface in a file; `opened` gives the one it builds on, when a line of that is first asked for."""
    first, *lines = lzma.decompress(data).decode().split("\n")
    header = json.loads(first)
    if header["format"] != FORMAT:
        raise UnknownSurface(f"A surface of format {header['format']}; this flashinfer_compat reads {FORMAT}.")
    return Surface(Metadata.decoded(header), _Lines(lines, header["base"], opened))


class _Lines(Mapping[str, str]):
    """The lines of a file by name; those that stand for the base's are looked up there."""

    def __init__(self, lines: list[str], base: str | None, opened: Callable[[str], Surface]) -> None:
        # A line begins with its name: ["flashinfer.norm",…
        self._lines = {line[2 : line.index('"', 2)]: line for line in lines}
        self._base = base
        self._opened = opened

    def __getitem__(self, key: str) -> str:
        line = self._lines[key]
        if self._base is not None and len(line) == len(key) + 4:
            return self._opened(self._base).lines[key]
        return line

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

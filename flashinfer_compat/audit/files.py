"""The source files below the audited paths; whatever cannot be read is said, and harms nothing."""

from __future__ import annotations

import ast
import os
import stat
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PYTHON = (".py", ".pyi")
#: No source that a person wrote is larger; generated tables are.
LARGEST = 8 * 2**20
_NOT_SOURCE = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class Skipped:
    """A file or folder that was not audited, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class Listed:
    """A file below the audited `root`; `name` is its path from there, with the root's own name in front."""

    path: str
    name: str


def listed(paths: Iterable[Path], skipped: list[Skipped]) -> Iterator[Listed]:
    """The files below `paths`, ordered by name. Symbolic links are not followed: what they lead to is audited there."""
    for root in paths:
        name = root.resolve().name
        if not root.is_dir():
            yield Listed(str(root), name)
            continue
        folders = [(str(root), name)]
        while folders:  # no recursion: a tree may be deeper than Python's stack
            folder, prefix = folders.pop()
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError as error:
                skipped.append(Skipped(folder, error.strerror or str(error)))
                continue
            below = []
            for entry in entries:
                if entry.is_symlink():
                    if entry.name.endswith(PYTHON) or Path(entry.path).is_dir():
                        skipped.append(Skipped(entry.path, "a symbolic link"))
                elif entry.is_dir(follow_symlinks=False):
                    if entry.name not in _NOT_SOURCE and not entry.name.startswith("."):
                        below.append((entry.path, f"{prefix}/{entry.name}"))
                else:
                    yield Listed(entry.path, f"{prefix}/{entry.name}")
            folders.extend(reversed(below))


def read(path: str, skipped: list[Skipped]) -> bytes | None:
    """A source file's bytes, None if it is none that can be read."""
    try:
        status = os.stat(path)  # noqa: PTH116 - thousands of them
        if not stat.S_ISREG(status.st_mode):
            skipped.append(Skipped(path, "no regular file"))
            return None
        if status.st_size > LARGEST:
            skipped.append(Skipped(path, f"larger than {LARGEST // 2**20} MiB"))
            return None
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError as error:
        skipped.append(Skipped(path, error.strerror or str(error)))
        return None


def parse(path: str, source: bytes, skipped: list[Skipped]) -> ast.Module | None:
    """A file's syntax tree, None if it is not this Python's."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        skipped.append(Skipped(path, f"cannot be parsed: {error.__class__.__name__}: {error}"))
        return None

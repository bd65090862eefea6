"""Processes that a patched process starts: forked ones are patched as they are, spawned ones by what they unpickle."""

from __future__ import annotations

import sys
from collections.abc import Callable
from multiprocessing import spawn
from pathlib import Path
from typing import Any

#: `multiprocessing`'s own function, while ours is in its place.
_original: Any = None


class _PatchOnArrival:
    """Patches the process that unpickles it, before that imports the program's main module."""

    def __init__(self, as_release: str | None) -> None:
        self.as_release = as_release

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        # By source, since the process does not have its parent's sys.path yet, where FlashInfer may be too.
        path = [*filter(None, sys.path), str(Path(__file__).parents[2])]
        return exec, (
            f"import sys\nsys.path += [each for each in {path!r} if each not in sys.path]\n"
            f"import flashinfer_compat\nflashinfer_compat.patch({self.as_release!r})",
        )


def patch_started_processes(as_release: str | None) -> None:
    """Send the patch along with what `multiprocessing` tells each process that it spawns, or has a server fork."""
    global _original
    original = _original = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**original(name), "flashinfer_compat": _PatchOnArrival(as_release)}

    spawn.get_preparation_data = get_preparation_data


def leave_started_processes() -> None:
    global _original
    if _original is not None:
        spawn.get_preparation_data = _original
        _original = None

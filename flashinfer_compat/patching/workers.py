"""Processes that a patched process starts: forked ones are patched as they are, the others by what they are told first.

A fork server imports what the program has it preload before it forks; a spawned process, its program's main module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from multiprocessing import spawn, util
from pathlib import Path
from typing import Any

#: What a fork server's command begins with (CPython's multiprocessing/forkserver.py).
_FORK_SERVER = "from multiprocessing.forkserver import main"
#: `multiprocessing`'s own functions, while ours are in their places.
_originals: dict[Any, Callable[..., Any]] = {}


def patch_started_processes(as_release: str | None) -> None:
    """Send the patch along with what `multiprocessing` tells each process that it spawns, and each fork server."""
    preparation = _originals[spawn] = spawn.get_preparation_data
    start = _originals[util] = util.spawnv_passfds

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**preparation(name), "flashinfer_compat": _PatchOnArrival(as_release)}

    def spawnv_passfds(path: Any, args: Sequence[Any], passfds: Any) -> int:
        told = [
            f"{_statements(as_release)}\n{one}" if isinstance(one, str) and one.startswith(_FORK_SERVER) else one
            for one in args
        ]
        process: int = start(path, told, passfds)
        return process

    spawn.get_preparation_data = get_preparation_data
    util.spawnv_passfds = spawnv_passfds


def leave_started_processes() -> None:
    if _originals:
        spawn.get_preparation_data = _originals.pop(spawn)
        util.spawnv_passfds = _originals.pop(util)


class _PatchOnArrival:
    """Patches the process that unpickles it, before that imports the program's main module."""

    def __init__(self, as_release: str | None) -> None:
        self.as_release = as_release

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return exec, (_statements(self.as_release),)


def _statements(as_release: str | None) -> str:
    """What patches another process: by source, for that has not its parent's sys.path, where FlashInfer may be, yet."""
    path = [*filter(None, sys.path), str(Path(__file__).parents[2])]
    return (
        f"import sys\nsys.path += [each for each in {path!r} if each not in sys.path]\n"
        f"import flashinfer_compat\nflashinfer_compat.patch({as_release!r})"
    )

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
#: Whose children are told: the patch's `as_release` in a list, empty while there is none.
_told: list[str | None] = []
#: Our functions in the places of `multiprocessing`'s, each with what it calls.
_in_place: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {}


def patch_started_processes(as_release: str | None) -> None:
    """Send the patch along with what `multiprocessing` tells each process that it spawns, and each fork server."""
    _told[:] = [as_release]
    if spawn not in _in_place:
        spawn.get_preparation_data = _preparing(spawn.get_preparation_data)
    if util not in _in_place:
        util.spawnv_passfds = _starting(util.spawnv_passfds)


def leave_started_processes() -> None:
    _told.clear()
    for module, name in ((spawn, "get_preparation_data"), (util, "spawnv_passfds")):
        # What somebody has put around ours stays, and finds that ours adds nothing.
        if module in _in_place and getattr(module, name) is _in_place[module][0]:
            setattr(module, name, _in_place.pop(module)[1])


def _preparing(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        return {**data, "flashinfer_compat": _PatchOnArrival(_told[0])} if _told else data

    _in_place[spawn] = get_preparation_data, original
    return get_preparation_data


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    def spawnv_passfds(path: Any, args: Sequence[Any], passfds: Any) -> Any:
        if _told:
            args = [
                f"{_statements(_told[0])}\n{one}" if isinstance(one, str) and one.startswith(_FORK_SERVER) else one
                for one in args
            ]
        return original(path, args, passfds)

    _in_place[util] = spawnv_passfds, original
    return spawnv_passfds


class _PatchOnArrival:
    """Patches the process that unpickles it, before that imports the program's main module."""

    def __init__(self, as_release: str | None) -> None:
        self.as_release = as_release

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return exec, (_statements(self.as_release),)


def _statements(as_release: str | None) -> str:
    """What patches another process: by source, for that has not its parent's sys.path, where FlashInfer may be, yet."""
    path = [*(each for each in sys.path if isinstance(each, str) and each), str(Path(__file__).parents[2])]
    return (
        f"import sys\nsys.path += [each for each in {path!r} if each not in sys.path]\n"
        f"from flashinfer_compat import patching\npatching.patch_as_parent({as_release!r})"
    )

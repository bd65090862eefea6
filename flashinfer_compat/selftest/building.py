"""Says which modules FlashInfer compiles while a case waits for them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from .library import NATIVE

#: Seconds between two looks into the folder, and between two lines in a log.
_LOOK, _REPEAT = 0.5, 15.0


def cache_folder() -> Path | None:
    """Where the installed FlashInfer compiles to, a folder for each module."""
    folder = getattr(NATIVE.jit.env, "FLASHINFER_JIT_DIR", None)
    return None if folder is None else Path(folder)


def being_built(folder: Path, since: float) -> list[str]:
    """The modules whose build was prepared after `since`, seconds of the epoch, and whose library is not there yet."""
    found = []
    for build in folder.glob("*/build.ninja"):
        library = build.with_name(f"{build.parent.name}.so")
        if not library.exists() and any(each.stat().st_mtime >= since for each in (build, build.parent)):
            found.append(build.parent.name)
    return sorted(found)


@contextmanager
def told(case: str, folder: Path | None, stream: TextIO = sys.stderr) -> Iterator[None]:
    """Within it a line on `stream` says what `case` waits for, and for how long; on a terminal it is rewritten."""
    if folder is None:
        yield
        return
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(case, folder, stream, done), daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _watch(case: str, folder: Path, stream: TextIO, done: threading.Event) -> None:
    since, began = time.time(), time.monotonic()
    last, shown = -_REPEAT, ""
    while not done.wait(_LOOK):
        modules, elapsed = ", ".join(being_built(folder, since)), time.monotonic() - began
        if not modules:
            continue
        line = f"{case}: building {modules}, {elapsed:.0f} s"
        if stream.isatty():
            stream.write("\r" + line.ljust(len(shown)))
            shown = line
        elif elapsed - last >= _REPEAT:
            stream.write(line + "\n")
            last = elapsed
        stream.flush()
    if shown:
        stream.write("\n")

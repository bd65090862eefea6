"""Patching from the interpreter's start: the ``.pth`` file that `enable` writes, and ``FLASHINFER_COMPAT_PATCH``."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from .. import patching
from ..errors import CompatError
from . import imports

FILE = "flashinfer_compat.pth"
#: "1", or the release that the code was written against.
VARIABLE = "FLASHINFER_COMPAT_PATCH"
_FIRST_IMPORT = Path(__file__).with_name("first_import.py")
# One line, run by `site` in every interpreter: it must cost nothing and hold no error where the variable is not set.
# The path is written down, since the facade may lie in a folder that comes to sys.path later.
_LINE = (
    f"import os; os.environ.get({VARIABLE!r}, '0') in ('', '0') or "
    f"exec(open({str(_FIRST_IMPORT)!r}, encoding='utf-8').read(), {{}})\n"
)


def patched_as_told(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    """What executes FlashInfer's package, as ``FLASHINFER_COMPAT_PATCH`` says, or the program's own `patch` before.

    Raises `CompatError` for a value that is neither "1" nor "0" nor a release.
    """
    told = os.environ.get(VARIABLE, "0").strip()
    if told not in ("", "0") and not patching.was_called:
        try:
            patching.patch(None if told == "1" else told)
        except CompatError as error:
            raise type(error)(f"{VARIABLE} is {told!r}: {error}") from error
    return imports.watched(execute)


def enable() -> Path:
    """Write the file into this environment; returns where. Nothing changes while the variable is not set."""
    path = _path()
    path.write_text(_LINE, encoding="utf-8")
    return path


def disable() -> Path | None:
    """Remove the file; returns where it was, None if there was none."""
    path = _path()
    if not path.exists():
        return None
    path.unlink()
    return path


def _path() -> Path:
    return Path(sysconfig.get_path("purelib")) / FILE

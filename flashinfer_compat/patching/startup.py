"""Patching from the interpreter's start: a ``.pth`` file that `enable` writes, and ``FLASHINFER_COMPAT_PATCH``."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

FILE = "flashinfer_compat.pth"
#: "1", or the release that the code was written against.
VARIABLE = "FLASHINFER_COMPAT_PATCH"
# One line, run by `site` in every interpreter: it must cost nothing and hold no error where the variable is not set.
_LINE = (
    f"import os; os.environ.get({VARIABLE!r}) and "
    "__import__('importlib.util', fromlist=['find_spec']).find_spec('flashinfer_compat') and "
    "__import__('flashinfer_compat.patching.startup', fromlist=['patch_as_told']).patch_as_told()\n"
)


def patch_as_told() -> None:
    """Patch as ``FLASHINFER_COMPAT_PATCH`` says: "1", a release, "0" or nothing."""
    from .. import namespace
    from . import patch

    told = os.environ.get(VARIABLE, "0")
    if told != "0" and namespace.selected.release is not None:
        patch(None if told == "1" else told)


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

"""Patch when the program first imports FlashInfer: which one that is stands only then, and others pay nothing.

Executed by its path at the interpreter's start (startup.py), when sys.path is not complete: it imports nothing of ours.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any


class _PatchFirst:
    """Finds nothing by itself: it has the patch made before anything else looks for ``flashinfer``."""

    #: Whether the patch is made, or being made; it stays False after an error, so that no later import passes by it.
    done = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != "flashinfer" or self.done or _is_choosing(sys.modules.get("flashinfer_compat")):
            return None
        self.done = True
        try:
            from flashinfer_compat.patching.startup import patch_as_told

            patch_as_told()
        except BaseException as error:
            self.done = False
            if isinstance(error, ImportError):
                # Engines take an ImportError for "not installed", and would go on without FlashInfer.
                raise RuntimeError(str(error)) from error
            raise
        return find_spec(fullname)


def _is_choosing(facade: Any) -> bool:
    """Whether the facade is being imported, and only looks where FlashInfer lies."""
    return facade is not None and "flashinfer_version" not in vars(facade)


sys.meta_path.insert(0, _PatchFirst())

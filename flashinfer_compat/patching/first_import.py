"""Patch when the program first imports FlashInfer: which one that is stands only then, and others pay nothing.

Executed by its path at the interpreter's start (startup.py), when sys.path is not complete: it imports nothing of ours.
"""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _PatchFirst:
    """Finds what those behind it find, and has the patch made before FlashInfer's code is executed.

    Not while it is looked for: the import system holds its own lock then, and other threads may be importing.
    """

    #: Not after an error, so that no later import passes by it.
    done = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != "flashinfer" or self.done:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find: Any = getattr(finder, "find_spec", None)
            spec: Any = find(fullname, path, target) if find else None
            if spec is not None:
                if spec.origin is not None:  # else it is a folder of that name, without a package
                    spec.loader.exec_module = self._patching(spec.loader.exec_module)
                found: ModuleSpec = spec
                return found
        return None

    def _patching(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            try:
                import flashinfer_compat  # noqa: F401  (first: it waits for a thread that is importing it)
                from flashinfer_compat.patching import startup

                dressed = startup.patched_as_told(execute)
            except ImportError as error:
                # Engines take an ImportError for "not installed", and would go on without FlashInfer.
                raise RuntimeError(str(error)) from error
            self.done = True
            dressed(module)

        return exec_module


sys.meta_path.insert(0, _PatchFirst())

"""Imports of FlashInfer while it is patched: its modules are dressed when loaded, and those it lacks come from here."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .. import namespace
from ..errors import MissingModule
from .modules import EmulatedModule, Patch, is_facades_own


def watch(patch: Patch) -> None:
    sys.meta_path.insert(0, _Watcher(patch))
    sys.meta_path.append(_MissingModules())


def unwatch(patch: Patch) -> None:
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, (_Watcher, _MissingModules))]
    for name, module in list(sys.modules.items()):
        if isinstance(module, EmulatedModule):
            del sys.modules[name]
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(child, None)


def watched(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    """`execute`, what executes FlashInfer's package, for one that was found before the watch began."""
    for finder in sys.meta_path:
        if isinstance(finder, _Watcher):
            return finder.dressing(execute)
    return execute


class _Depth(threading.local):
    """How many of FlashInfer's modules the current thread is importing, one inside the other."""

    value = 0


class _Watcher(MetaPathFinder):
    """Finds what the others find, and has FlashInfer dressed when the outermost of its imports is done."""

    def __init__(self, patch: Patch) -> None:
        self.patch = patch
        self.depth = _Depth()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != namespace.NATIVE_ROOT:
            return None
        for finder in list(sys.meta_path):
            # The import system passes over a finder of the old kind, too.
            find: Any = None if isinstance(finder, _Watcher) else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                loader: Any = spec.loader
                if loader is not None and "exec_module" not in vars(loader):
                    # The loader itself stays, with what others ask of it (source, resources).
                    loader.exec_module = self.dressing(loader.exec_module)
                return spec
        return None

    def dressing(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            self.depth.value += 1
            self.patch.leave(module)
            self.patch.executing.add(module)
            try:
                execute(module)
            finally:
                self.patch.executing.discard(module)
                self.depth.value -= 1
            if not self.depth.value and self in sys.meta_path:
                self.patch.dress_loaded()

        return exec_module


class _MissingModules(MetaPathFinder, Loader):
    """Behind all others: modules that only the facade has. Of those that nobody has it says which releases do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, below = fullname.partition(".")
        if root != namespace.NATIVE_ROOT or not below or is_facades_own(below):
            return None
        if importlib.util.find_spec(f"{namespace.ROOT}.{below}") is None:
            if namespace.being_imported() and (why := namespace.absence(below)):
                raise MissingModule(why, name=fullname)
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return EmulatedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: its names are read from the facade's module when they are asked for."""

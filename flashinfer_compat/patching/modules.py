"""FlashInfer's modules, dressed: a name that the facade adapts is the facade's object for all readers but FlashInfer.

Functions read their module's globals as a dictionary, so FlashInfer's own calls never come here; an attribute that is
read, or imported, from outside does.
"""

from __future__ import annotations

import dis
import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from .. import namespace
from ..errors import FeatureUnavailable, MissingImport
from ..support import MISSING

if TYPE_CHECKING:
    from .as_release import AsRelease

_ROOT, _NATIVE = namespace.ROOT, namespace.NATIVE_ROOT
#: The modules that the facade has for itself, below its name.
_OWN_MODULES = frozenset(entry.name.partition(".")[0] for entry in Path(__file__).parents[1].iterdir())
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


class Patch:
    """What `patch` has changed, and how to undo it."""

    def __init__(self, as_release: str | None) -> None:
        self.as_release = as_release
        self.written = _written_for(as_release) if as_release else None
        #: Modules of FlashInfer's that some thread is executing: what they will hold is not there yet.
        self.executing: set[ModuleType] = set()
        self._dressed: dict[str, _Dressed] = {}
        self._lock = threading.RLock()

    def dress_loaded(self) -> None:
        """Dress FlashInfer's loaded modules, those that were dressed before with what has become known since."""
        with self._lock:
            lines, adapted = self.names(), self._adapted_objects()
            for name, module in list(sys.modules.items()):
                if _is_flashinfers(name) and isinstance(module, ModuleType) and module not in self.executing:
                    dressed = self._dressed.get(name)
                    if dressed is None or dressed.module is not module:  # imported again
                        dressed = self._dressed[name] = _Dressed(self, module)
                    dressed.adapt(lines.get(dressed.below_root, ()), adapted)

    def leave(self, module: ModuleType) -> None:
        """Undress a module of which the code is executed again."""
        with self._lock:
            dressed = self._dressed.get(module.__name__)
            if dressed is not None and dressed.module is module:
                del self._dressed[module.__name__]
                dressed.undo()

    def undress(self) -> None:
        with self._lock:
            for dressed in self._dressed.values():
                dressed.undo()
            self._dressed.clear()

    def held_elsewhere(self) -> dict[str, list[str]]:
        """Modules of others that hold objects which the facade adapts -> the names that they have there."""
        adapted = self._adapted_objects()
        held = {}
        for name, module in list(sys.modules.items()):
            if isinstance(module, ModuleType) and not _is_ours(name):
                found = [own for own, value in list(vars(module).items()) if id(value) in adapted]
                if found:
                    held[name] = found
        return held

    def _adapted_objects(self) -> set[int]:
        """The identity of each of FlashInfer's loaded objects that the facade adapts."""
        found: set[int] = set()
        for holder, names in self.names().items():
            module = sys.modules.get(f"{_NATIVE}.{holder}" if holder else _NATIVE)
            held = vars(module) if module is not None else {}
            found.update({id(held[name]) for name in names if callable(held.get(name))})
        return found

    def names(self) -> dict[str, list[str]]:
        """The names whose object may be another than FlashInfer's, by the module that has them."""
        names: dict[str, list[str]] = {}
        for dotted in {*namespace.adapter().names, *(self.written.names if self.written else ())}:
            holder, _, name = dotted.rpartition(".")
            names.setdefault(holder, []).append(name)
        return names

    def object(self, module: str, name: str) -> Any:
        """What readers get as `name` of FlashInfer's module `module` (``""`` for the package)."""
        value = getattr(importlib.import_module(f"{_ROOT}.{module}" if module else _ROOT), name)
        if self.written is None or not callable(value):
            return value
        return self.written.apply(value, f"{module}.{name}" if module else name)


class _Dressed:
    """One of FlashInfer's modules with the facade's objects."""

    def __init__(self, patch: Patch, module: ModuleType) -> None:
        self.patch, self.module = patch, module
        self.below_root = module.__name__[len(_NATIVE) + 1 :]
        self.plain = type(module)
        self.own_getattr: Callable[[str], Any] | None = vars(module).get("__getattr__")
        vars(module)["__getattr__"] = self.read_missing

    def adapt(self, names: Sequence[str], adapted: set[int]) -> None:
        """Put a descriptor in for each of `names`, and for each `adapted` object, whatever the module calls it."""
        held = vars(self.module)
        exported: list[str] = []
        if not adapted.isdisjoint(map(id, held.values())):
            exported = [name for name, value in held.items() if id(value) in adapted]
        for name in {*exported, *names}:
            if type(self.module) is self.plain:
                # A class of its own, so that a name can be a descriptor in it.
                self.module.__class__ = type(self.plain.__name__, (self.plain,), {"__dir__": self.listed})
            if name not in vars(type(self.module)):
                setattr(type(self.module), name, _AdaptedName(self, name))

    def listed(self) -> list[str]:
        """What ``dir`` tells of the module."""
        return sorted({*self.plain.__dir__(self.module), *namespace.bound_names(self.below_root)})

    def undo(self) -> None:
        self.module.__class__ = self.plain
        if vars(self.module).get("__getattr__") != self.read_missing:
            return  # the module's code was executed again, and has its own there
        if self.own_getattr is None:
            vars(self.module).pop("__getattr__", None)
        else:
            vars(self.module)["__getattr__"] = self.own_getattr

    def native(self, name: str) -> Any:
        """FlashInfer's own value of a name."""
        value = vars(self.module).get(name, MISSING)
        if value is not MISSING:
            return value
        if self.own_getattr is not None:
            return self.own_getattr(name)
        raise AttributeError(f"module {self.module.__name__!r} has no attribute {name!r}")

    def read_missing(self, name: str) -> Any:
        """The module's ``__getattr__`` (PEP 562): names that FlashInfer exports lazily, and those it does not have."""
        reader = sys._getframe(1)
        # What of the facade is no module or name of FlashInfer's does not become one.
        dotted = f"{self.below_root}.{name}" if self.below_root else name
        if name == "__all__" and self.own_getattr is None and not _is_internal(reader):
            return [public for public in self.listed() if not public.startswith("_")]
        adapted = vars(type(self.module)).get(name)
        deleted = isinstance(adapted, _AdaptedName) and adapted.assigned
        if name.startswith("__") or deleted or _is_internal(reader) or is_facades_own(dotted):
            return self.native(name)
        return self.read(name, reader)

    def read(self, name: str, reader: FrameType) -> Any:
        try:
            return self.patch.object(self.below_root, name)
        except FeatureUnavailable as error:
            if reader.f_code.co_code[reader.f_lasti] == _IMPORT_FROM:
                # Of an AttributeError the import statement would drop the message.
                raise MissingImport(str(error)) from error
            raise


class _AdaptedName:
    """A name in a dressed module. What is assigned to it is FlashInfer's to use too, as without the patch."""

    def __init__(self, dressed: _Dressed, name: str) -> None:
        self.dressed, self.name = dressed, name
        self.original = vars(dressed.module).get(name, MISSING)
        self.given: Any = MISSING
        #: Whether the program has put something of its own there, or nothing.
        self.assigned = namespace.is_replaced(self.original)

    def __get__(self, module: ModuleType | None, kind: type | None = None) -> Any:
        if module is None:
            return self
        reader = sys._getframe(1)
        held = vars(module).get(self.name, MISSING)
        if held is not self.original and not self.assigned:
            # Put into the module's dictionary: by FlashInfer, or as unittest.mock.patch.dict does it.
            if namespace.is_replaced(held):
                return held
            self.original, self.given = held, MISSING
        if self.assigned or _is_internal(reader):
            return self.dressed.native(self.name)
        if self.given is not MISSING:
            return self.given
        value = self.dressed.read(self.name, reader)
        if callable(value) and not namespace.is_replaced(value):
            self.given = value
            if value is vars(module).get(self.name):
                # Native here: from now on as plain as without the patch.
                delattr(type(module), self.name)
        return value

    def __set__(self, module: ModuleType, value: Any) -> None:
        if value is self.given:
            self._restore(module)
        elif isinstance(value, ModuleType) and value.__name__ == f"{module.__name__}.{self.name}":
            vars(module)[self.name] = value  # the import system's doing
        else:
            if namespace.is_replaced(self.original) and not namespace.is_replaced(value):
                self.original = value  # what the program had replaced before patch()
            vars(module)[self.name] = value
            self.assigned = value is not self.original or namespace.is_replaced(value)

    def __delete__(self, module: ModuleType) -> None:
        held = vars(module).get(self.name, MISSING)
        if self.assigned and held is MISSING:
            raise AttributeError(f"module {module.__name__!r} has no attribute {self.name!r}")
        if held is self.original:
            vars(module).pop(self.name, None)
            self.assigned = True
        else:
            self._restore(module)

    def _restore(self, module: ModuleType) -> None:
        self.assigned = False
        if self.original is MISSING:
            vars(module).pop(self.name, None)
        else:
            vars(module)[self.name] = self.original


class EmulatedModule(ModuleType):
    """A module that the installed FlashInfer does not have and the facade does."""

    def __getattr__(self, name: str) -> Any:
        # The facade looks here for FlashInfer's own, of which there is none.
        if (name.startswith("__") and name != "__all__") or _is_internal(sys._getframe(1)):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._facades(), name)

    def __dir__(self) -> list[str]:
        return [] if _is_internal(sys._getframe(1)) else dir(self._facades())

    def _facades(self) -> ModuleType:
        return importlib.import_module(_ROOT + self.__name__[len(_NATIVE) :])


def is_facades_own(dotted: str) -> bool:
    """Whether the facade has `dotted` for itself, as ``cli`` or ``patch``: no module or name of FlashInfer's."""
    top = dotted.partition(".")[0]
    return namespace.is_own_name(top) or top in _OWN_MODULES


def _written_for(release: str) -> AsRelease:
    # Imported where it is asked for: it opens recorded surfaces, and each import under the patch would pay for that.
    from .as_release import AsRelease

    return AsRelease(release)


def _is_internal(reader: FrameType) -> bool:
    return _is_ours(reader.f_globals.get("__name__") or "")


def _is_ours(module: str) -> bool:
    """FlashInfer's, or the facade's, which has to see FlashInfer as it is."""
    return module.startswith((f"{_NATIVE}.", f"{_ROOT}.")) or module in (_NATIVE, _ROOT)


def _is_flashinfers(module: str) -> bool:
    return module == _NATIVE or module.startswith(f"{_NATIVE}.")

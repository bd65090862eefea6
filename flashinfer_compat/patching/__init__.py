"""`patch()`: code that imports ``flashinfer`` itself gets the contract, without being changed."""

from __future__ import annotations

import sys
import threading
import warnings

from .. import namespace, selection
from ..errors import CompatError, CompatWarning, UnsupportedRelease
from . import imports, modules, workers

_lock = threading.RLock()
_active: modules.Patch | None = None
#: Whether patch() has been called at all: whoever takes it back means it.
was_called = False


def patch(as_release: str | None = None) -> None:
    """Give whoever imports ``flashinfer`` the facade's objects where they differ from FlashInfer's own.

    FlashInfer's own code keeps its originals, what needs no adaptation stays FlashInfer's object, and FlashInfer is not
    imported before the program does. Processes that `multiprocessing` starts are patched too.

    `as_release` ("0.7.2") gives in addition that release's positional orders and defaults, for code written against it.

    Raises `UnsupportedRelease` without FlashInfer and `CompatError` for an unknown `as_release`, or one other than that
    of the patch in force. Warns (`CompatWarning`) of modules that hold objects of FlashInfer's from before.
    """
    global _active, was_called
    with _lock:
        if _active is not None:
            if _active.as_release != as_release:
                raise CompatError(
                    f"flashinfer is patched already, as release {_active.as_release}; call unpatch() before patching "
                    f"it as release {as_release}."
                )
            return
        if namespace.choose_again().release is None:
            raise UnsupportedRelease(
                "There is no FlashInfer to patch: the facade runs in plain PyTorch here, as it was told to. Unset "
                f"{selection.BACKEND_VARIABLE}."
                if namespace.selected.reference
                else namespace.NOTHING_TO_PATCH
            )
        started = modules.Patch(as_release)
        imports.watch(started)
        workers.patch_started_processes(as_release)
        _active, was_called = started, True
        if namespace.NATIVE_ROOT in sys.modules:
            started.dress_loaded()
            if held := started.held_elsewhere():
                told = "; ".join(f"{module}: {', '.join(names)}" for module, names in sorted(held.items()))
                warnings.warn(
                    f"Imported from flashinfer before patch(), and still FlashInfer's own there: {told}. Call patch() "
                    "first, or import these again.",
                    CompatWarning,
                    stacklevel=2,
                )


def patch_as_parent(as_release: str | None) -> None:
    """Patch as the parent process is; a fork server may have handed on an earlier patch of its."""
    if _active is not None and _active.as_release != as_release:
        unpatch()
    patch(as_release)


def unpatch() -> None:
    """Take the facade's objects out of FlashInfer's modules again. Modules that hold them keep them."""
    global _active
    with _lock:
        if _active is None:
            return
        workers.leave_started_processes()
        imports.unwatch(_active)
        _active.undress()
        _active = None

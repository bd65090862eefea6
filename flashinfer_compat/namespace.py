"""FlashInfer's modules, mirrored: ``flashinfer_compat.X.Y`` is the adapter's or FlashInfer's own.

A mirrored module holds nothing until a name is read; functions, classes and modules are then stored in it, so later
reads are plain. Other values are read through each time, since FlashInfer may rebind them. No lock is taken: two
threads may make the same binding, and ``dict.setdefault`` lets one win.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import selection
from .errors import CompatError, FeatureUnavailable, MissingImport, MissingModule, UnsupportedRelease
from .support import MISSING

if TYPE_CHECKING:
    from .adapters.model import Adapter

ROOT = __package__
NATIVE_ROOT = "flashinfer"
#: The dunder names that are FlashInfer's to answer; the rest belong to our module objects.
_FORWARDED_DUNDERS = frozenset({"__all__", "__version__", "__git_version__", "__git_commit__"})

selected = selection.Selection(None, None)
_adapter: Adapter | None = None
_own: dict[str, str] = {}
#: What was assigned to FlashInfer's modules, or deleted from them, through ours.
_assigned: dict[ModuleType, dict[str, _Assignments]] = {}


def install(chosen: selection.Selection, own: Mapping[str, str]) -> None:
    """Make the package root a mirrored module and answer imports below it. Called once, by the package itself.

    `own` are names of the root that are the facade's, each with the module that has it, imported when first read.
    """
    global selected
    selected = chosen
    _own.update(own)
    sys.modules[ROOT].__class__ = MirroredModule
    sys.meta_path.append(_Finder())


def adapter() -> Adapter:
    """The chosen adapter; `FeatureUnavailable` says what to install where there is no FlashInfer."""
    global _adapter
    if _adapter is None:
        release = choose_again().release
        if release is None:
            raise FeatureUnavailable(NOTHING_INSTALLED)
        _adapter = release.adapter
    return _adapter


def choose_again() -> selection.Selection:
    """What is chosen, by what sys.path has now: a program may have changed it since it imported the facade.

    The choice stands once a name of FlashInfer's was read.
    """
    global selected
    if _adapter is None and not selected.reference and selection.installed_version() != selected.installed:
        selected = selection.select()
        vars(sys.modules[ROOT])["flashinfer_version"] = selected.installed
    return selected


#: What a patch says, for which there must be a FlashInfer; the facade by itself has another way.
NOTHING_TO_PATCH = f"FlashInfer is not installed. {selection.WHAT_TO_INSTALL}."
NOTHING_INSTALLED = (
    f"{NOTHING_TO_PATCH} For the contract in plain PyTorch set {selection.BACKEND_VARIABLE}={selection.REFERENCE}."
)


def use_reference() -> None:
    """From here on the contract runs in plain PyTorch, on any device, as with ``FLASHINFER_COMPAT_BACKEND=reference``.

    Before the first name of FlashInfer's is read, for names that were read stay FlashInfer's: `CompatError` otherwise.
    """
    global selected
    if not selected.reference:
        if _adapter is not None:
            raise CompatError("use_reference() comes too late: names of FlashInfer's have been read already.")
        selected = selection.Selection(selected.installed, None, reference=True)


class _Assignments:
    """The earlier values of one name of FlashInfer's, newest last.

    A name that a mirrored module passes through is not in its ``__dict__``, so pytest's monkeypatch and unittest.mock
    undo an assignment by deleting it: the value before it comes back.
    """

    def __init__(self) -> None:
        self.earlier: list[Any] = []

    def assign(self, native: ModuleType, name: str, value: Any) -> None:
        if self.earlier and self.earlier[-1] is value:
            self.earlier.pop()
        elif hasattr(native, name):
            self.earlier.append(getattr(native, name))
        setattr(native, name, value)

    def delete(self, native: ModuleType, name: str) -> None:
        if self.earlier:
            setattr(native, name, self.earlier.pop())
        else:
            delattr(native, name)


def _assignments(native: ModuleType, name: str) -> _Assignments:
    return _assigned.setdefault(native, {}).setdefault(name, _Assignments())


class MirroredModule(ModuleType):
    """One of FlashInfer's modules under this package's name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _FORWARDED_DUNDERS:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if self.__name__ == ROOT and name in _own:
            value = getattr(importlib.import_module(f"{ROOT}.{_own[name]}"), name)
        else:
            value = _resolve(self, name)
        if (callable(value) and not is_replaced(value)) or isinstance(value, ModuleType):
            return self.__dict__.setdefault(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, MirroredModule) and value.__name__ == f"{self.__name__}.{name}":
            # The import system binding a submodule. FlashInfer may have a function of that name (flashinfer.xqa).
            self.__dict__.pop(name, None)
            return
        native = None if name.startswith("__") or _is_own(value) else _native_holder(self, name)
        if native is None:
            super().__setattr__(name, value)
        else:
            # The caller assigns to FlashInfer's module, and means it; what the facade passes through follows.
            _assignments(native, name).assign(native, name, value)
            self.__dict__.pop(name, None)

    def __delattr__(self, name: str) -> None:
        native = None if name.startswith("__") else _native_holder(self, name)
        if native is None:
            super().__delattr__(name)
        else:
            _assignments(native, name).delete(native, name)
            self.__dict__.pop(name, None)

    def __dir__(self) -> list[str]:
        names = {name for name, value in self.__dict__.items() if not (name.startswith("_") or _is_own(value))}
        if self.__name__ == ROOT:
            names.update(_own)
        if selected.reference:
            names.update(_reference().names(_below_root(self.__name__)))
        elif choose_again().release is not None:
            native = _native_module(self)
            names.update(dir(native) if native else (), bound_names(_below_root(self.__name__)))
        return sorted(names)


def facade_object(dotted: str) -> Any:
    """The facade's object for a dotted name without the leading ``flashinfer.``, or AttributeError."""
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(_joined(ROOT, module)), name)


def native_object(dotted: str) -> Any:
    """FlashInfer's own object for a dotted name, or `MISSING`."""
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(_import_native(module), name)
    except AttributeError:
        return MISSING
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(NATIVE_ROOT):
            raise  # the module is there, a package that it needs is not
        return MISSING


def is_own_name(name: str) -> bool:
    """Whether the package has `name` for itself, as ``patch``: no name of FlashInfer's."""
    return name in _own


def is_replaced(value: Any) -> bool:
    """Whether a callable in the place of FlashInfer's is a program's own, of which FlashInfer's lines say nothing."""
    module = getattr(value, "__module__", None)
    return callable(value) and not (isinstance(module, str) and module.partition(".")[0] in (NATIVE_ROOT, ROOT))


def native_module(dotted: str) -> ModuleType | None:
    """FlashInfer's own module of that name, imported; None where it has none, or cannot import it."""
    try:
        return _import_native(dotted)
    except ImportError:
        return None


def _resolve(module: MirroredModule, name: str) -> Any:
    dotted = _joined(_below_root(module.__name__), name)
    if selected.reference:
        return _resolve_reference(module, name, dotted)
    if dotted in adapter().names:
        value = native_object(dotted)
        if not is_replaced(value):
            value = adapter().bind(dotted, value, facade_object)
        if value is not MISSING:
            return value
    try:
        native = getattr(_native_module(module), name)
    except AttributeError as error:
        submodule = sys.modules.get(f"{module.__name__}.{name}")
        if submodule is not None:
            return submodule
        if name == "__all__":
            return [public for public in dir(module) if not public.startswith("_")]
        if missing := missing_name(name):
            return adapter().bind(missing, MISSING, facade_object)  # which raises, and says which releases have it
        raise FeatureUnavailable(absence(dotted) or _not_here(module, dotted)) from error
    if isinstance(native, ModuleType):
        return importlib.import_module(ROOT + native.__name__[len(NATIVE_ROOT) :]) if _is_native(native) else native
    bound = bound_name(native)
    return _bound_to(bound, native) if bound else native


def _bound_to(dotted: str, native: Any) -> Any:
    """The facade's object for `native`, even while a program has something of its own under its name."""
    if native_object(dotted) is native:
        return facade_object(dotted)
    holder, _, name = dotted.rpartition(".")
    value = adapter().bind(dotted, native, facade_object)
    return vars(importlib.import_module(_joined(ROOT, holder))).setdefault(name, value)


def _resolve_reference(module: MirroredModule, name: str, dotted: str) -> Any:
    if name == "__version__":
        return f"{selection.NEWEST}+{selection.REFERENCE}"
    if name == "__all__":
        return [public for public in dir(module) if not public.startswith("_")]
    lookup = _reference()
    value = lookup.find(dotted)
    if value is not MISSING:
        return value
    if lookup.is_module(dotted):
        return importlib.import_module(_joined(ROOT, dotted))
    raise lookup.absent(dotted)


def _reference() -> Any:
    """The reference's table of names: it reads the newest recorded surface, so it is imported when it is asked."""
    from .reference import lookup

    return lookup


def missing_name(name: str) -> str | None:
    """The dotted name of what the adapter says is missing, for a `name` that later releases have in several modules."""
    for dotted in adapter().names:
        if dotted.rpartition(".")[2] == name and adapter().refuses(dotted) and not is_available(dotted):
            return dotted
    return None


def absence(dotted: str) -> str | None:
    """Which releases have a module or name that the installed one lacks, and what to do; None where none has it."""
    from .surfaces.lifetimes import lifetime

    lived = lifetime(dotted)
    if lived is None or (selected.release and selected.release.version in lived.releases):
        return None
    # Of a module that is gone its names' lines say what to do, unless they supply it.
    below = [name for name in adapter().names if name.startswith(f"{dotted}.")]
    if any(adapter().available(name, MISSING) for name in below):
        return None
    told = (adapter().instead(name) for name in below)
    instead = next(filter(None, told), lived.instead)
    return f"{NATIVE_ROOT}.{dotted}: {lived}; installed is {selected.installed}. {instead}"


def _not_here(module: MirroredModule, dotted: str) -> str:
    """Why a name is not in FlashInfer's `module` that no other release is known to have there either."""
    path = getattr(_native_module(module), "__path__", None)
    if path is not None and PathFinder.find_spec(_joined(NATIVE_ROOT, dotted), path) is not None:
        return (
            f"{NATIVE_ROOT}.{dotted} is a module that FlashInfer {selected.installed} does not import by itself: "
            f"import {_joined(ROOT, dotted)} first."
        )
    return (
        f"FlashInfer {selected.installed} has no {NATIVE_ROOT}.{dotted} here, and flashinfer_compat knows no other way."
    )


def is_available(dotted: str) -> bool:
    """Whether the facade has the name here, where FlashInfer's own may need a package that is not installed."""
    try:
        native = native_object(dotted)
    except ModuleNotFoundError:
        return False
    return adapter().available(dotted, native)


def bound_name(native: Any) -> str | None:
    """The name under which the adapter binds `native`, if it does: FlashInfer exports one object in several modules."""
    if not callable(native):
        return None
    for dotted in adapter().names:
        module, _, name = dotted.rpartition(".")
        holder = sys.modules.get(_joined(NATIVE_ROOT, module))
        if holder is None:
            continue
        held = vars(holder).get(name, MISSING)
        if held is MISSING and name == getattr(native, "__name__", ""):
            # Exported lazily (PEP 562), and loaded by now: it is `native` itself, or something else of its name.
            held = native_object(dotted)
        if held is native or (
            # It is what the name was defined as, and something else was put there since.
            getattr(native, "__qualname__", "") == name and getattr(native, "__module__", "") == holder.__name__
        ):
            return dotted
    return None


def bound_names(module: str) -> set[str]:
    """What the adapter adds to or keeps in FlashInfer's `module`."""
    found = set()
    for dotted in adapter().names:
        holder, _, name = dotted.rpartition(".")
        if holder == module and is_available(dotted):
            found.add(name)
    return found


def _below_root(name: str) -> str:
    return name[len(ROOT) + 1 :]


def _joined(module: str, name: str) -> str:
    """A dotted name of two parts, either of which may be empty."""
    return f"{module}.{name}" if module and name else module or name


def _import_native(dotted: str) -> ModuleType:
    """FlashInfer's module `dotted`, ``""`` for the package itself.

    Packages come first: while another thread imports one, importing it waits, and importing a submodule would not; and
    one that failed for want of a package leaves behind submodules that can still be imported, once.
    """
    module = importlib.import_module(NATIVE_ROOT)
    name = NATIVE_ROOT
    for part in dotted.split(".") if dotted else ():
        name = f"{name}.{part}"
        module = importlib.import_module(name)
    return module


def _native_module(module: MirroredModule) -> ModuleType | None:
    """FlashInfer's module, None where the adapter alone knows it."""
    if selected.release is None:
        raise FeatureUnavailable(NOTHING_INSTALLED)
    prefix = _below_root(module.__name__)
    if prefix and not _module_exists(prefix):
        return None
    return _import_native(prefix)


def _native_holder(module: MirroredModule, name: str) -> ModuleType | None:
    """FlashInfer's module, if it holds `name` and the adapter leaves that name alone."""
    if choose_again().release is None:
        return None
    if _joined(_below_root(module.__name__), name) in adapter().names:
        return None
    native = _native_module(module)
    if native is None or name in _assigned.get(native, ()):
        return native
    value = getattr(native, name, MISSING)
    # A module of FlashInfer's has one of ours in its place here.
    return None if value is MISSING or (isinstance(value, ModuleType) and _is_native(value)) else native


def _is_own(value: Any) -> bool:
    return isinstance(value, ModuleType) and value.__name__.startswith(f"{ROOT}.")


def _is_native(module: ModuleType) -> bool:
    return module.__name__ == NATIVE_ROOT or module.__name__.startswith(f"{NATIVE_ROOT}.")


class _Finder(MetaPathFinder, Loader):
    """Answers ``import flashinfer_compat.X.Y`` for FlashInfer's modules, behind the finder of our own."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{ROOT}."):
            return None
        dotted = _below_root(fullname)
        if selected.reference:
            return self._reference_spec(fullname, dotted)
        if choose_again().release is None:
            raise UnsupportedRelease(NOTHING_INSTALLED)
        if _module_exists(dotted) or any(
            # What FlashInfer has in a module that it does not have needs no asking.
            name.startswith(f"{dotted}.") and adapter().available(name, MISSING)
            for name in adapter().names
        ):
            return ModuleSpec(fullname, self, is_package=True)
        # `from … import name` comes here when the name is missing: say why, where that is known.
        missing = dotted if dotted in adapter().names else missing_name(dotted.rpartition(".")[2])
        if missing:
            try:
                adapter().bind(missing, native_object(missing), facade_object)
            except FeatureUnavailable as error:
                raise MissingImport(str(error)) from error
        if being_imported() and (why := absence(dotted)):
            raise MissingModule(why)
        return None

    def _reference_spec(self, fullname: str, dotted: str) -> ModuleSpec | None:
        """Every module of FlashInfer's can be imported; of the names in it the missing ones say that they are."""
        if dotted.partition(".")[0] == selection.REFERENCE:
            return None  # a module of our own that is not there
        lookup = _reference()
        if lookup.is_module(dotted):
            return ModuleSpec(fullname, self, is_package=True)
        if being_imported():
            raise MissingModule(str(lookup.absent(dotted)))
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return MirroredModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Import FlashInfer's module, if it has this one: where that fails, so does ours, as engines' guards expect."""
        dotted = _below_root(module.__name__)
        if not selected.reference and _module_exists(dotted):
            _import_native(dotted)


def being_imported() -> bool:
    """Whether a finder is asked for an import, and not by `importlib.util.find_spec`, which engines probe with."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        module = frame.f_globals.get("__name__")
        if module == "importlib.util":
            return False
        if module == "importlib._bootstrap" and frame.f_code.co_name == "_find_and_load_unlocked":
            return True
    return False


def _module_exists(dotted: str) -> bool:
    """Whether FlashInfer has this module, found without importing it."""
    if f"{NATIVE_ROOT}.{dotted}" in sys.modules:
        return True
    name, directory = NATIVE_ROOT, selection.package_directory()
    path: Sequence[str] | None = [str(directory)] if directory else None
    for part in dotted.split("."):
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, path) if path else None
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True

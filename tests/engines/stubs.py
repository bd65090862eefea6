"""An engine's own modules, loaded from its source with everything else of the engine replaced by stubs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

#: Packages that engines' modules import at their top and that have nothing to do with FlashInfer.
NOT_NEEDED = (
    "IPython",
    "aiter",
    "deep_ep",
    "fastapi",
    "msgspec",
    "pybase64",
    "pydantic",
    "regex",
    "requests",
    "sgl_kernel",
    "torch_npu",
    "triton",
    "zmq",
)


class Anything:
    """Stands for any object of an engine's: a value, a decorator, a base class, a namespace, a true condition."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = Anything(f"{self.__name__}.{name}")
        self.__dict__[name] = value
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # A decorator without arguments gives back what it decorates.
        if len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Anything):
            return args[0]
        return self

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (Base,)

    def __instancecheck__(self, instance: Any) -> bool:
        return True

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __getitem__(self, item: Any) -> Any:
        return self

    def __repr__(self) -> str:
        return f"<stub {self.__name__}>"


class Base:
    """What a class has for a base that is a stub."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __init_subclass__(cls, **kwargs: Any) -> None: ...


class StubModule(ModuleType):
    __path__: Sequence[str] = ()

    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = Anything(f"{self.__name__}.{name}")
        self.__dict__[name] = value
        return value


class EngineFinder(MetaPathFinder, Loader):
    """Finds `real` modules of an engine in its source; the rest of it, and `NOT_NEEDED`, are stubs."""

    def __init__(self, source: Path, engine: str, real: Iterable[str], values: Mapping[str, Any]) -> None:
        self.source, self.engine, self.real, self.values = source, engine, frozenset(real), values

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self.real:
            file = self.source.joinpath(*fullname.split(".")).with_suffix(".py")
            return importlib.util.spec_from_file_location(fullname, file)
        if fullname.partition(".")[0] in (self.engine, *NOT_NEEDED):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        for dotted, value in self.values.items():
            holder, _, name = dotted.rpartition(".")
            if holder == module.__name__:
                setattr(module, name, value)


def load(source: Path, name: str, *others: str, values: Mapping[str, Any] | None = None) -> Any:
    """The engine's module `name`, as its source has it, and `others` that it imports; all else stubbed.

    `values` are what stubbed modules have that is not just anything: dotted name -> value.
    """
    engine = name.partition(".")[0]
    sys.meta_path.insert(0, EngineFinder(source, engine, (name, *others), values or {}))
    return importlib.import_module(name)

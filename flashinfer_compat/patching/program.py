"""A program, run as this process's main module and left there: threads and exit handlers outlive its last line."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from ..errors import CompatError


class NoProgram(CompatError):
    """There is nothing of that name to run."""


class Program(NamedTuple):
    """What is run, and what it sees as ``__spec__`` (a plain script has none) and ``sys.argv[0]``."""

    code: CodeType
    loader: Any
    file: str
    spec: ModuleSpec | None
    name: str

    def run(self, arguments: list[str]) -> None:
        main = ModuleType("__main__")
        vars(main).update(
            __annotations__={},
            __builtins__=builtins,
            __cached__=self.spec.cached if self.spec else None,
            __file__=self.file,
            __loader__=self.loader,
            __package__=self.spec.parent if self.spec else None,
            __spec__=self.spec,
        )
        sys.modules["__main__"] = main
        sys.argv = [self.name, *arguments]
        exec(self.code, vars(main))


def module(name: str) -> Program:
    """A module, or a package's ``__main__``, as ``python -m name`` runs it. Raises `NoProgram`."""
    _look_first_in(str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a package of the program's own has not all that it needs
        spec = None
    return _of_module(spec, name)


def script(path: str) -> Program:
    """A file, or the ``__main__`` of a folder or an archive, as ``python path`` runs it. Raises `NoProgram`."""
    folder = str(Path(path).absolute())
    spec = PathFinder.find_spec("__main__", [folder])
    if spec is not None or Path(path).is_dir():
        _look_first_in(folder)
        return _of_module(spec, path)._replace(name=path)
    # Beside the file itself, where `path` is a link to it.
    _look_first_in(str(Path(path).resolve().parent))
    file = str(Path(path).absolute())
    loader = SourceFileLoader("__main__", file)
    try:
        source = loader.get_data(file)
    except OSError as error:
        raise NoProgram(f"{path} cannot be run: {error.strerror}.") from error
    return Program(loader.source_to_code(source, file), loader, file, None, path)


def _look_first_in(folder: str) -> None:
    """In the place of this program's own folder, as the interpreter does it; not with ``-P``."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _of_module(spec: ModuleSpec | None, name: str) -> Program:
    loader: Any = spec.loader if spec else None
    code = loader.get_code(spec.name) if spec and hasattr(loader, "get_code") else None
    if spec is None or spec.origin is None or code is None:
        raise NoProgram(f"There is no module {name} that can be run.")
    return Program(code, loader, spec.origin, spec, spec.origin)

"""What an expression of the audited source can stand for, as far as FlashInfer is concerned."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tree import SourceFile


@dataclass(frozen=True)
class Thing:
    """A module, class, function or value of FlashInfer's that the release has, by its dotted name."""

    dotted: str


@dataclass(frozen=True)
class Missing:
    """A name that the release lacks: using it raises `error`."""

    dotted: str
    error: str = "AttributeError"


@dataclass(frozen=True)
class Instance:
    """An object of one of FlashInfer's classes."""

    of: str


@dataclass(frozen=True)
class Method:
    """A method of such an object."""

    of: str
    name: str


@dataclass(frozen=True)
class RawModule:
    """The compiled module that a wrapper of class `of` holds, or one of its functions."""

    of: str
    function: str = ""


@dataclass(frozen=True)
class Literal:
    """A value that is known: text, a number, a version, None."""

    value: Any


@dataclass(frozen=True, eq=False)
class Written:
    """A list, tuple, set or dictionary as the source writes it."""

    node: ast.List | ast.Tuple | ast.Set | ast.Dict
    file: SourceFile


@dataclass(frozen=True)
class Parameters:
    """The parameters that `inspect.signature` shows of `of`, a function of FlashInfer's."""

    names: tuple[str, ...]
    of: str


@dataclass(frozen=True, eq=False)
class Own:
    """A function or class of the audited source; `bound` if it has its first argument already."""

    node: ast.AST
    file: SourceFile
    bound: bool = False


@dataclass(frozen=True, eq=False)
class OwnInstance:
    """An object of an audited class."""

    node: ast.ClassDef
    file: SourceFile


@dataclass(frozen=True, eq=False)
class OwnModule:
    """An audited module."""

    file: SourceFile


@dataclass(frozen=True, eq=False)
class Partial:
    """``functools.partial(function, …)``, with the call that made it."""

    function: Value
    call: ast.Call
    file: SourceFile


@dataclass(frozen=True)
class Unknown:
    """Anything else."""


UNKNOWN = Unknown()
Value = (
    Thing
    | Missing
    | Instance
    | Method
    | RawModule
    | Literal
    | Written
    | Parameters
    | Own
    | OwnInstance
    | OwnModule
    | Partial
    | Unknown
)
Values = tuple[Value, ...]


def truths(values: Values) -> frozenset[bool]:
    """Which truth values are possible; a name that is missing has none, it raises."""
    found: set[bool] = set()
    for value in values or (UNKNOWN,):
        if isinstance(value, (Unknown, Written, Parameters)):
            return frozenset((True, False))
        if isinstance(value, Literal):
            found.add(bool(value.value))
        elif not isinstance(value, Missing):
            found.add(True)
    return frozenset(found)

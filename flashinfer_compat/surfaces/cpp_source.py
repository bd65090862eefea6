"""The C++ side from its source text: exported JIT functions and function templates.

No preprocessor runs: a declaration whose list of parameters ends in a macro (``ADDITIONAL_FUNC_PARAMS``) keeps the
macro's name as the tail of its last parameter, and counts what is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .model import Template

EXPORT_MARK = b"TVM_FFI_DLL_EXPORT_TYPED_FUNC"

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_EXPORT = re.compile(r"^[ \t]*TVM_FFI_DLL_EXPORT_TYPED_FUNC\(\s*(\w+)\s*,\s*", re.MULTILINE)
_TEMPLATE = re.compile(r"\btemplate\s*<")
_DECLARATOR = re.compile(
    r"[;{}=]|\b(?:struct|class|union|using|concept|requires|template)\b|(operator\s*\S+?|~?\w+)\s*\("
)
_INCLUDE = re.compile(r'^[ \t]*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
_CALL = re.compile(r"\s*\(")
_QUALIFIERS = re.compile(r"(?:\w+::)+$")
#: What stands before a declared name, and not before a called one.
_ENDS_A_TYPE = re.compile(r"(?<!\w)(?!(?:return|else|co_return|throw|new)$)[\w:]+$|[>&*\]]$")
_LAMBDA = re.compile(r"\[[^\]]*\]\s*\(")
#: Words that a parenthesis may follow in front of a function's name.
_NOT_A_NAME = frozenset(
    {"__launch_bounds__", "__attribute__", "alignas", "decltype", "__align__", "if", "while", "for"}
)
_BRACKETS = {"(": ")", "<": ">", "[": "]", "{": "}"}


def included(source: str) -> list[str]:
    """The files that a text includes, as written."""
    return _INCLUDE.findall(source)


def without_comments(source: str) -> str:
    return _COMMENTS.sub(" ", source)


def read_exports(source: str) -> dict[str, str | tuple[str, ...]]:
    """Exported function -> its C++ parameters, or the C++ function's name where this text does not declare it.

    `source` is a text `without_comments`, here and below.
    """
    found: dict[str, str | tuple[str, ...]] = {}
    for match in _EXPORT.finditer(source):
        rest = source[match.end() :]
        written = _LAMBDA.match(rest)
        if written:
            found[match[1]] = _split(_balanced(rest, written.end() - 1))
            continue
        # `name<true>)` and `namespace::name)`: the last part, without its template arguments.
        function = re.split(r"[<)]", rest[:400], maxsplit=1)[0].strip("& \n").rpartition("::")[2]
        declared = parameters_of(source, function)
        found[match[1]] = function if declared is None else declared
    return found


def parameters_of(source: str, function: str) -> tuple[str, ...] | None:
    """The parameters of the first declaration or definition of `function`; None where there is none."""
    position = source.find(function)
    while position >= 0:
        opening = _CALL.match(source, position + len(function))
        before = source[:position].rpartition("\n")[2] if opening else ""
        before = _QUALIFIERS.sub("", before or source[max(0, position - 200) : position]).rstrip()
        if opening and function.isidentifier() and _ENDS_A_TYPE.search(before):
            inside = _balanced(source, opening.end() - 1)
            after = source[opening.end() + len(inside) + 1 :][:40].lstrip()
            if after[:1] in ("{", ";") or after.startswith("noexcept"):
                return _split(inside)
        position = source.find(function, position + 1)
    return None


def read_templates(source: str) -> dict[str, tuple[Template, ...]]:
    """Function template -> its overloads. Class templates are left out, their methods are not."""
    found: dict[str, list[Template]] = {}
    for name, template in _templates(source):
        overloads = found.setdefault(name, [])
        if template not in overloads:
            overloads.append(template)
    return {name: tuple(overloads) for name, overloads in found.items()}


def _templates(source: str) -> Iterator[tuple[str, Template]]:
    for match in _TEMPLATE.finditer(source):
        inside = _balanced(source, match.end() - 1)
        position = match.end() + len(inside) + 1
        while declarator := _DECLARATOR.search(source, position):
            if declarator[1] is None:  # a class, an alias, a variable, or a `template` that is matched by itself
                break
            arguments = _balanced(source, declarator.end() - 1)
            if declarator[1] in _NOT_A_NAME:
                position = declarator.end() + len(arguments) + 1
                continue
            yield declarator[1], Template(_split(inside), _split(arguments))
            break


def _balanced(source: str, opening: int) -> str:
    """The text between the bracket at `opening` and the one that closes it."""
    bracket = source[opening]
    closing = _BRACKETS[bracket]
    depth = 0
    inner = 0  # parentheses inside template brackets: `a > (b)` closes nothing
    for position in range(opening, min(len(source), opening + 20_000)):
        character = source[position]
        if bracket == "<" and character in "()":
            inner += 1 if character == "(" else -1
        elif character == bracket and not inner:
            depth += 1
        elif character == closing and not inner and source[position - 1] != "-":
            depth -= 1
            if not depth:
                return source[opening + 1 : position]
    return source[opening + 1 : opening + 1]


def _split(text: str) -> tuple[str, ...]:
    """A parameter list's parts, layout normalised."""
    parts: list[str] = []
    depth = start = 0
    for position, character in enumerate(text):
        if character in "(<[{":
            depth += 1
        elif character in ")>]}" and text[position - 1] != "-":
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return tuple(" ".join(part.split()) for part in parts if part.strip() and part.strip() != "void")

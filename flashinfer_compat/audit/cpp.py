"""C++ and CUDA sources that include FlashInfer's headers: what their calls of its templates come to on each release.

The texts are read, nothing is compiled: a call counts by the number of its arguments and of its template arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..surfaces.cpp_source import included, read_templates
from ..surfaces.model import Surface, Template
from . import findings
from .files import Listed, Skipped, read
from .findings import WORKS, Effect, Finding, Outcome

SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc")
_HEADERS = "data/include/"
_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_TEMPLATE_LIST = re.compile(r"(\b\w+)\s*<[^<>;(){}]*>")


@dataclass
class _File:
    path: str
    name: str
    text: str
    includes: list[str]


def audited(files: Iterable[Listed], surfaces: Mapping[str, Surface], skipped: list[Skipped]) -> Iterator[Finding]:
    """The findings in the C++ files that include a header of FlashInfer's, themselves or through each other."""
    read_files = list(_including(files, skipped))
    headers = {version: _templates(surface) for version, surface in surfaces.items()} if read_files else {}
    names = {name for by_name in headers.values() for name in by_name}
    differing = {name for name in names if len({by_name.get(name) for by_name in headers.values()}) > 1}
    own = {file.name.partition("include/")[2] for file in read_files}
    for file in read_files:
        yield from _headers(file, surfaces, own)
        yield from _calls(file, headers, differing - set(read_templates(file.text)))


def _including(files: Iterable[Listed], skipped: list[Skipped]) -> Iterator[_File]:
    """The files that include FlashInfer, and those that include them."""
    others: list[_File] = []
    found: list[_File] = []
    for listed in files:
        source = read(listed.path, skipped)
        if source is not None and b"#" in source:
            # Line numbers stay: a comment leaves its line ends.
            text = re.sub(r"/\*.*?\*/|//[^\n]*", _blank, source.decode("utf-8", "replace"), flags=re.DOTALL)
            file = _File(listed.path, listed.name, text, included(text))
            direct = any(one.startswith("flashinfer/") for one in file.includes)
            (found if direct else others).append(file)
    pending = list(found)
    while pending:
        tails = {file.name.rpartition("/")[2] for file in pending}
        pending = [one for one in others if any(include.rpartition("/")[2] in tails for include in one.includes)]
        others = [one for one in others if one not in pending]
        found += pending
    return iter(found)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n") or " "


def _templates(surface: Surface) -> dict[str, tuple[Template, ...]]:
    found: dict[str, tuple[Template, ...]] = {}
    for file in surface.sources:
        if file.startswith(_HEADERS):
            for name, overloads in surface.sources[file].templates.items():
                if name.isidentifier() and not name.isupper():
                    found[name] = (*found.get(name, ()), *overloads)
    return found


def _headers(file: _File, surfaces: Mapping[str, Surface], own: set[str]) -> Iterator[Finding]:
    """Included headers that a release does not have."""
    for include in file.includes:
        there = {version: f"{_HEADERS}{include}" in surface.sources for version, surface in surfaces.items()}
        if any(there.values()) and not all(there.values()) and include not in own:
            lost = Outcome(Effect.BREAKS, f"no header <{include}>")
            outcomes = {version: WORKS if has else lost for version, has in there.items()}
            line = file.text[: file.text.find(include)].count("\n") + 1
            yield Finding(findings.HEADER, file.path, line, 1, include, outcomes)


def _calls(file: _File, headers: Mapping[str, dict[str, tuple[Template, ...]]], names: set[str]) -> Iterator[Finding]:
    """Calls that no overload of a release takes."""
    words = sorted(name for name in names if name in file.text)
    if not words:
        return
    text = _TEXT.sub(lambda match: '"' + " " * (len(match[0]) - 2) + '"', file.text)
    call = re.compile(rf"(?<![\w.>])(?:\w+::)*({'|'.join(words)})\s*(<[^;{{}}]*?>)?\s*\(")
    found: dict[str, list[tuple[int, int, dict[str, bool]]]] = {}
    for match in call.finditer(text):
        arguments = _count(text, match.end() - 1)
        given = len(_split(match[2][1:-1])) if match[2] else 0
        if arguments is not None:
            fits = {
                version: any(_takes(one, arguments, given) for one in by_name.get(match[1], ()))
                for version, by_name in headers.items()
            }
            found.setdefault(match[1], []).append((match.start(1), arguments, fits))
    for name, calls in found.items():
        # A call for the old and one for the new, of which a release compiles its own.
        if all(any(fits[version] for _, _, fits in calls) for version in headers):
            continue
        for start, arguments, fits in calls:
            if any(fits.values()):
                lost = Outcome(Effect.BREAKS, f"no {name} takes {arguments} arguments")
                outcomes = {version: WORKS if fit else lost for version, fit in fits.items()}
                line = text[:start].count("\n") + 1
                column = start - text.rfind("\n", 0, start)
                yield Finding(findings.TEMPLATE, file.path, line, column, name, outcomes)


def _takes(template: Template, arguments: int, given: int) -> bool:
    required = sum("=" not in one for one in template.arguments)
    variadic = any("..." in one for one in (*template.arguments, *template.parameters))
    return variadic or (required <= arguments <= len(template.arguments) and given <= len(template.parameters))


def _count(text: str, opening: int) -> int | None:
    """How many arguments stand between the parenthesis at `opening` and its end; None where there is none."""
    depth = 0
    for position in range(opening, min(len(text), opening + 20_000)):
        if text[position] in "([{":
            depth += 1
        elif text[position] in ")]}":
            depth -= 1
            if not depth:
                return len(_split(text[opening + 1 : position]))
    return None


def _split(text: str) -> list[str]:
    before = None
    while before != text:  # from the inside out: a<b<c, d>, e>
        before, text = text, _TEMPLATE_LIST.sub(r"\1", text)
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part for part in parts if part.strip()]

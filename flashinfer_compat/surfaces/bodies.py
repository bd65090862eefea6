"""Function bodies left out of a source before it is parsed: they are four fifths of FlashInfer and no surface.

Bodies are found by indentation, which strings may ignore: a function is left whole unless its triple quotes are even,
and a source that does not parse without bodies is parsed with them.
"""

from __future__ import annotations

import re
from functools import cache

_DEFINITION = re.compile(rb"^([ \t]*)(?:async )?def (\w+)\(", re.MULTILINE)
_ENDS_HEADER = re.compile(rb":[ \t]*(?:#[^\n]*)?$")
#: Functions whose bodies are read.
_READ = frozenset({b"__getattr__", b"__init__"})


def without_bodies(source: bytes) -> bytes:
    """`source` with ``...`` for the bodies of functions whose end is certain."""
    parts: list[bytes] = []
    position = 0
    in_string = False
    for definition in _DEFINITION.finditer(source):
        if definition.start() < position:
            continue
        in_string ^= _quotes_are_odd(source[position : definition.start()])
        parts.append(source[position : definition.start()])
        position = definition.start()
        start = None if in_string or definition[2] in _READ else _header_end(source, definition)
        if start is None:
            continue
        outdent = _outdent(len(definition[1])).search(source, start)
        end = outdent.start() if outdent else len(source)
        if not _quotes_are_odd(source[start:end]):
            parts += [source[position:start], definition[1], b" ...\n"]
            position = end
    parts.append(source[position:])
    return b"".join(parts)


def _header_end(source: bytes, definition: re.Match[bytes]) -> int | None:
    """Where the body begins, if the header is on one line or closes with a parenthesis at its own indentation."""
    line_end = source.find(b"\n", definition.end())
    if line_end < 0:
        return None
    if not _ENDS_HEADER.search(source, definition.end(), line_end):
        closing = _outdent(len(definition[1])).search(source, line_end + 1)
        if closing is None or not closing[0].endswith(b")"):
            return None
        line_end = source.find(b"\n", closing.end())
        if line_end < 0 or not _ENDS_HEADER.search(source, closing.end(), line_end):
            return None
    return line_end + 1


@cache
def _outdent(indentation: int) -> re.Pattern[bytes]:
    """The next statement that is indented no more than this."""
    return re.compile(rb"^[ \t]{0,%d}[^\s#]" % indentation, re.MULTILINE)


def _quotes_are_odd(source: bytes) -> bool:
    return bool((source.count(b'"""') + source.count(b"'''")) % 2)

"""Error text in; cause, releases and remedy out, from the recorded surfaces and the adapters' tables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

from ..selection import NEWEST
from ..surfaces.model import Surface
from . import history, tables
from .history import told

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
USE_FACADE = "import flashinfer_compat as flashinfer"


@dataclass(frozen=True)
class Explanation:
    """One recognised error: the text found, why it comes, which releases behave how, and what to do."""

    error: str
    cause: str
    releases: str
    remedy: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def explained(text: str) -> list[Explanation]:
    """What is known of the errors in `text`, each once and in their order; any text may surround them."""
    text = _COLOURS.sub("", text)
    found: dict[Explanation, int] = {}
    for pattern, explain in _PATTERNS:
        for match in re.finditer(pattern, text):
            for explanation in explain(match):
                found.setdefault(explanation, match.start())
    return sorted(found, key=lambda one: found[one])


def _unexpected_keyword(match: re.Match[str]) -> Iterator[Explanation]:
    name, keyword = match["name"].removesuffix(".__init__"), match["keyword"]
    for dotted in history.called(name)[:1]:
        have = history.having(partial(history.accepts, dotted=dotted, keyword=keyword))
        if not have:
            taken = history.parameters(history.find(NEWEST, dotted), history.surface(NEWEST))
            near = difflib.get_close_matches(keyword, [one.name for one in taken[0]] if taken else [], n=1)
            remedy = f"Did you mean {near[0]}?" if near else f"Leave {keyword} out."
        else:
            remedy = _remedy(dotted, have, keyword, constructor=match["name"].endswith("__init__"))
        releases = f"{keyword} is taken by {told(have)}; {dotted} exists in {_existing(dotted)}"
        yield Explanation(match[0], f"{dotted} of the installed release has no parameter {keyword}", releases, remedy)


def _missing_arguments(match: re.Match[str]) -> Iterator[Explanation]:
    names = re.findall(r"'(\w+)'", match["names"])
    for dotted in history.called(match["name"].removesuffix(".__init__"))[:1]:
        for name in names:
            required = history.having(partial(_requires, dotted=dotted, name=name))
            yield Explanation(
                match[0],
                f"{dotted} requires {name}",
                f"{name} is required by {told(required)}; taken by "
                + told(history.having(partial(history.accepts, dotted=dotted, keyword=name))),
                f"Pass {name} by keyword.",
            )


def _too_many(match: re.Match[str]) -> Iterator[Explanation]:
    given = int(match["given"])
    for dotted in history.called(match["name"].removesuffix(".__init__"))[:1]:
        take = history.having(partial(_fits, dotted=dotted, given=given))
        yield Explanation(
            match[0],
            f"{dotted} of the installed release takes {match['taken']} positional arguments",
            f"{given} are taken by {told(take)}",
            "Pass all but the first by keyword: their positions differ between releases.",
        )


def _no_name(match: re.Match[str]) -> Iterator[Explanation]:
    holder, name = match["holder"], match["name"]
    if holder != "flashinfer" and not holder.startswith("flashinfer."):
        holders = history.called(holder)
        if not holders:
            return
        holder = holders[0]
    dotted = f"{holder}.{name}"
    have = history.having(lambda surface: surface.find(dotted))
    cause = f"the installed release has no {dotted}"
    if have:
        yield Explanation(match[0], cause, f"{dotted} exists in {told(have)}", _remedy(dotted, have))
        return
    others = [other for other in history.elsewhere(NEWEST, name) if other != dotted]
    held = history.surface(NEWEST).modules.get(holder)
    near = difflib.get_close_matches(name, list(held.symbols) if held else [], n=1)
    remedy = f"Use {others[0]}." if others else f"Did you mean {holder}.{near[0]}?" if near else "Check the name."
    yield Explanation(match[0], cause, f"{dotted} exists in no supported release", remedy)


def _no_module(match: re.Match[str]) -> Iterator[Explanation]:
    module = match["module"]
    if module == "flashinfer":
        yield Explanation(match[0], "FlashInfer is not installed", told(()), f"pip install flashinfer-python=={NEWEST}")
        return
    have = history.having(lambda surface: module in surface.modules)
    remedy = _remedy(module, have) if have else "Check the name."
    yield Explanation(match[0], f"the installed release has no module {module}", f"it exists in {told(have)}", remedy)


def _arity(match: re.Match[str]) -> Iterator[Explanation]:
    expected, given = int(match["expected"]), int(match["given"])
    name = re.match(r"[\w.:]*", match["called"])
    function = re.split(r"[.:]", name[0])[-1] if name else ""
    yield from _raw(match[0], function, given, expected)


def _missing_value(match: re.Match[str]) -> Iterator[Explanation]:
    # Arguments are numbered from 0, so the first one that is missing is the count of those given.
    name = re.split(r"[.:]", match["called"] or "")[-1]
    yield from _raw(match[0], name, int(match["position"]), None)


def _raw(error: str, function: str, given: int, expected: int | None) -> Iterator[Explanation]:
    """A compiled function that took another number of arguments: the exported ones that take `given` somewhere."""
    counts = {version: dict(history.arities(version, function)) for version in history.VERSIONS}
    places = {
        place
        for version in history.VERSIONS
        for place, count in counts[version].items()
        if (expected is None and count > given) or count == expected
    }
    changed = sorted(place for place in places if len({by.get(place) for by in counts.values()} - {None}) > 1)
    exact = [place for place in changed if any(by.get(place) == given for by in counts.values())]
    cause = f"a compiled function{f' {function}' if function else ''} got {given} arguments" + (
        f" and takes {expected}" if expected is not None else ", and takes more"
    )
    for place in (exact or changed)[:3]:
        by_count: dict[int, list[str]] = {}
        for version, by in counts.items():
            if place in by:
                by_count.setdefault(by[place], []).append(version)
        releases = "; ".join(f"{count} in {told(tuple(have))}" for count, have in by_count.items())
        yield Explanation(
            error,
            cause,
            f"{place} takes {releases}",
            f"Do not call the compiled function directly: {USE_FACADE}, whose wrappers complete the arguments "
            "(flashinfer_compat.prefill.raw_fa2_plan for the FA2 planner).",
        )
    if not changed:
        yield Explanation(
            error,
            cause,
            "no recorded release changed such a function",
            "The compiled kernel and the Python code are of different releases: flashinfer-compat doctor",
        )


def _template(match: re.Match[str]) -> Iterator[Explanation]:
    function = match["function"].split("<")[0].rpartition("::")[2].strip()
    by_release = {version: history.templates(version, function) for version in history.VERSIONS}
    headers = sorted({header for found in by_release.values() for header in found})
    for header in headers:
        groups: dict[tuple[str, ...], list[str]] = {}
        for version, found in by_release.items():
            groups.setdefault(found.get(header, ()), []).append(version)
        told_groups = [f"{told(tuple(have))}: {_arguments(signatures)}" for signatures, have in groups.items()]
        ours = header.rpartition("/")[2]
        adapted = ours in _adapted_headers()
        yield Explanation(
            match[0].strip(),
            f"{function} of {header} takes other arguments in the installed release"
            if len(groups) > 1
            else f"the call does not fit {function} of {header}",
            "; ".join(told_groups),
            f"#include <flashinfer_compat/{ours}> with flashinfer_compat.include_dirs() in front of the include path: "
            "one signature on every release."
            if adapted
            else "Give the arguments that the installed release takes.",
        )


def _mismatch(match: re.Match[str]) -> Iterator[Explanation]:
    yield Explanation(
        match[0],
        f"{match['name']} {match['version']} was built for another FlashInfer than {match['wanted']}",
        "FlashInfer 0.7.1 refuses to import; later ones ignore the package and compile or download instead",
        f"pip install {match['name']}=={match['wanted'].partition('+')[0]} (or uninstall it); "
        "do not set FLASHINFER_DISABLE_VERSION_CHECK. See: flashinfer-compat doctor",
    )


def _library(match: re.Match[str]) -> Iterator[Explanation]:
    yield Explanation(
        match[0],
        f"a compiled kernel is linked to CUDA {match['major']}, which is not in this environment",
        "all releases",
        "flashinfer-compat doctor names the kernels",
    )


def _tool(match: re.Match[str]) -> Iterator[Explanation]:
    yield Explanation(
        match[0], "a kernel must be compiled, and its tool is missing", "all releases", "flashinfer-compat doctor"
    )


def _remedy(dotted: str, have: tuple[str, ...], keyword: str = "", *, constructor: bool = False) -> str:
    """What the adapters' tables say of a name or keyword; else the releases that have it."""
    keys = {history.short(dotted)}
    for version in have:
        target = history.find(version, dotted)
        if target is not None:
            keys.add(history.short(target.dotted))
    if constructor:
        keys |= {f"{key}.__init__" for key in keys}
    lines = [
        line for line in tables.lines() if line.key in keys and (keyword in line.adds if keyword else not line.adds)
    ]
    for line in lines:
        if line.outcome == "unavailable":
            return f"Needs FlashInfer {line.since or have[0]}: {line.note}. {line.instead}".strip()
        instead = f" New code: {line.instead}." if line.instead else ""
        return f"{USE_FACADE} ({line.outcome}: {line.note}).{instead}"
    newest = " or later" if have[-1] == NEWEST else ""
    wanted = have[0] if newest else have[-1]
    moved = [] if keyword or NEWEST in have else history.elsewhere(NEWEST, dotted.rpartition(".")[2])
    instead = f"; or use {moved[0]}" if moved else ""
    return f"Install FlashInfer {wanted}{newest}{instead}."


def _existing(dotted: str) -> str:
    return told(history.having(lambda surface: surface.find(dotted)))


def _requires(surface: Surface, dotted: str, name: str) -> bool:
    taken = history.parameters(surface.find(dotted), surface)
    return taken is not None and any(one.name == name and one.required for one in taken[0])


def _fits(surface: Surface, dotted: str, given: int) -> bool:
    taken = history.parameters(surface.find(dotted), surface)
    return taken is not None and given <= sum(one.positional for one in taken[0])


def _arguments(signatures: tuple[str, ...]) -> str:
    return " or ".join(signatures) or "not there"


def _adapted_headers() -> set[str]:
    from ..headers import include_dirs

    return {path.name for folder in include_dirs() for path in folder.rglob("*.cuh")}


_PATTERNS: tuple[tuple[str, Callable[[re.Match[str]], Iterator[Explanation]]], ...] = (
    (r"(?P<name>[\w.]+)\(\) got an unexpected keyword argument '(?P<keyword>\w+)'", _unexpected_keyword),
    (
        r"(?P<name>[\w.]+)\(\) missing \d+ required (?:positional|keyword-only) arguments?: (?P<names>.+)",
        _missing_arguments,
    ),
    (r"(?P<name>[\w.]+)\(\) takes (?:from \d+ to )?(?P<taken>\d+) positional arguments? but (?P<given>\d+)", _too_many),
    (
        r"cannot import name '(?P<name>\w+)' from (?:partially initialized module )?'(?P<holder>flashinfer[\w.]*)'",
        _no_name,
    ),
    (r"module '(?P<holder>flashinfer[\w.]*)' has no attribute '(?P<name>\w+)'", _no_name),
    (r"(?:type object )?'(?P<holder>[A-Z]\w+)' (?:object )?has no attribute '(?P<name>\w+)'", _no_name),
    (r"No module named '(?P<module>flashinfer(?:\.[\w.]+)?)'", _no_module),
    (
        r"Mismatched number of arguments when calling: `(?P<called>[^`]*)`\. "
        r"Expected (?P<expected>\d+) but got (?P<given>\d+)",
        _arity,
    ),
    (r"(?:(?P<called>[\w.:]+)\(\) (?:is )?)?missing value for argument '_(?P<position>\d+)'", _missing_value),
    (
        r'no instance of (?:overloaded )?function(?: template)? "(?P<function>[\w:]+)[^"]*" matches the argument list',
        _template,
    ),
    (r"no matching function for call to [‘'](?P<function>[\w:]+)", _template),
    (r"too (?:few|many) arguments in function call[^\n]*\n\s*(?:[\w:\s*&]*?)(?P<function>[\w:]+)\s*[<(]", _template),
    (
        r"(?P<name>flashinfer-(?:cubin|jit-cache)[\w-]*) version \((?P<version>[^)]+)\) does not match "
        r"flashinfer(?:-jit-cache)? version \((?P<wanted>[^)]+)\)",
        _mismatch,
    ),
    (r"lib(?:cudart|nvrtc)\.so\.(?P<major>\d+)[\w.]*: cannot open shared object file", _library),
    (r"Could not find nvcc[^\n]*|No such file or directory: '(?:ninja|nvcc)'", _tool),
)

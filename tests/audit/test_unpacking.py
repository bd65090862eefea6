"""Results taken apart."""

from __future__ import annotations

import pytest

from flashinfer_compat.audit.values import Thing

from .conftest import RELEASES, SUPPORTED, Audited, told

SINGLE, PAIR = "flashinfer.rmsnorm", "flashinfer.merge_state"


def test_what_the_surfaces_say() -> None:
    assert [RELEASES.parts(release, Thing(SINGLE)) for release in SUPPORTED] == [1] * 5
    assert [RELEASES.parts(release, Thing(PAIR)) for release in SUPPORTED] == [2] * 5
    assert RELEASES.parts("0.7.4", Thing("flashinfer.no_such_name")) is None


@pytest.mark.parametrize(
    "source",
    [
        "from flashinfer import merge_state\nv, s = merge_state(1, 2, 3, 4)",
        "from flashinfer import rmsnorm\nx = rmsnorm(1, 2)",
        # Wrong on every release alike: nothing that a move of the pin would change.
        "from flashinfer import rmsnorm\nx, y = rmsnorm(1, 2)",
        "from flashinfer import merge_state\nv, *rest = merge_state(1, 2, 3, 4)",
    ],
)
def test_what_fits(audited: Audited, source: str) -> None:
    assert told(audited(source)) == []

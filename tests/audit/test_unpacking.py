"""Results taken apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flashinfer_compat.audit.uses import Audit
from flashinfer_compat.audit.values import Thing

from .conftest import RELEASES, SUPPORTED, Audited, told

SINGLE, PAIR = "flashinfer.rmsnorm", "flashinfer.merge_state"


def test_what_the_surfaces_say() -> None:
    assert [RELEASES.parts(release, Thing(SINGLE)) for release in SUPPORTED] == [1] * 5
    assert [RELEASES.parts(release, Thing(PAIR)) for release in SUPPORTED] == [2] * 5
    assert RELEASES.parts("0.7.4", Thing("flashinfer.no_such_name")) is None


def test_a_part_more(audited: Audited) -> None:
    source = """
    from flashinfer.experimental.kimi_k3_latent_moe.cake_backend import tail_gemm_config
    one, two, three = tail_gemm_config(1)
    """
    found = [one for one in told(audited(source)) if one[0] == "FIC203"]
    assert found == [("FIC203", "experimental.kimi_k3_latent_moe.cake_backend.tail_gemm_config", {"0.7.1": "breaks"})]


def test_a_single_tensor_by_its_annotation_is_listed(audit: Callable[..., Audit]) -> None:
    """FlashInfer 0.7.1 to 0.7.2.post1 annotate chain_speculative_sampling so, and return three tensors."""
    source = "from flashinfer.sampling import chain_speculative_sampling as f\na, b, c = f(1, 2, 3)"
    checked = audit(source, "0.7.4")
    assert told(list(checked.found())) == []
    assert [one.why[:5] for one in checked.unresolved][:2] == ["0.7.1", "0.7.2"]


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

"""The package data: what it holds, and what is said of 0.7.3, which nobody could read."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import pytest
from packaging.version import Version

from flashinfer_compat.adapters import RELEASES
from flashinfer_compat.surfaces import breakages as kinds
from flashinfer_compat.surfaces import store
from flashinfer_compat.surfaces.derived import derive
from flashinfer_compat.surfaces.diff import diff

PREFILL = "data/csrc/batch_prefill_jit_binding.cu"
SAMPLING = "data/include/flashinfer/sampling.cuh:DeviceSamplingFromProb"


def test_every_supported_release_has_a_surface_and_the_order_is_theirs() -> None:
    assert {release.version for release in RELEASES} <= {*store.RECORDED, *store.DERIVED}
    assert list(store.RECORDED) == sorted(store.RECORDED, key=Version)


def test_all_surfaces_together_stay_small() -> None:
    sizes = [entry.read_bytes() for entry in (files(store.__package__) / "data").iterdir() if entry.is_file()]
    assert sum(map(len, sizes)) <= 3_000_000


@pytest.mark.parametrize(
    ("release", "arity"), [("0.7.1", 20), ("0.7.2", 20), ("0.7.2.post1", 20), ("0.7.3", 21), ("0.7.4", 21)]
)
def test_the_planners_arity(release: str, arity: int) -> None:
    exports = store.open_surface(release).sources[PREFILL].exports
    assert len(exports["plan"] or ()) == arity


@pytest.mark.parametrize("release", [*store.RECORDED, *store.DERIVED])
def test_a_surface_opens_and_finds_what_all_releases_have(release: str) -> None:
    surface = store.open_surface(release)
    assert surface.version == release
    found = surface.find("flashinfer.rmsnorm")
    assert found is not None
    assert found.dotted == "flashinfer.norm.rmsnorm"
    assert str(found.symbol).startswith("(input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-06, ")


def test_another_release_is_refused_with_the_way_to_record_it() -> None:
    with pytest.raises(store.UnknownSurface, match=r"0\.6\.9 is not recorded.*flashinfer-compat record 0\.6\.9"):
        store.open_surface("0.6.9")


def test_surfaces_are_not_read_by_the_facade() -> None:
    code = "import flashinfer_compat, sys; assert not any('.surfaces' in name for name in sys.modules)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


@pytest.mark.parametrize(
    ("symbol", "provenance"),
    [
        ("flashinfer.comm.MoeAlltoAll", "known"),
        ("flashinfer.comm.MoeAlltoAll.dispatch", "known"),
        ("flashinfer.mla._core._get_trtllm_gen_multi_ctas_kv_counter_buffer", "known"),
        (f"{PREFILL}:plan", "known"),
        (f"{PREFILL}:workspace_size", "inferred"),
        (SAMPLING, "known"),
        ("flashinfer.moe_ep.MoEEpCommunication.dispatch", "known"),
        ("flashinfer.moe_ep.MoEEpTensors.__init__", "unknown"),
        ("flashinfer.mla.KimiK3MlaFp8PagedAttention.wide", "inferred"),
        ("flashinfer.norm.rmsnorm", "inferred"),
        ("flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper.plan", "unknown"),
        ("flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper.__init__", "unknown"),
    ],
)
def test_provenance_of_0_7_3(symbol: str, provenance: str) -> None:
    assert derive("0.7.3").provenance(symbol) == provenance


def test_each_fact_of_0_7_3_is_seen_in_one_neighbour() -> None:
    surface = derive("0.7.3")
    for fact in surface.facts.values():
        assert fact.as_in in (surface.older.version, surface.newer.version)
        assert fact.provenance in ("known", "inferred")
        assert fact.source
        assert not surface.neighbours_agree(fact.symbol), f"{fact.symbol} is the same in both neighbours"


def test_a_difference_says_whether_0_7_3_is_known_to_have_it() -> None:
    older, derived = store.open_surface("0.7.2.post1"), store.open_surface("0.7.3")
    ragged = "flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper.plan"
    found = diff(older, derived, ["comm.MoeAlltoAll", f"{PREFILL}:plan", ragged, "norm.rmsnorm"])
    assert {(one.symbol, one.kind, one.provenance) for one in found} == {
        ("flashinfer.comm.MoeAlltoAll", "Removed", "known"),
        (f"{PREFILL}:plan", "ArityChanged", "known"),
        (ragged, "ParameterInserted", "unknown"),
        (ragged, "ParameterAdded", "unknown"),
    }
    assert kinds.ArityChanged(symbol=f"{PREFILL}:plan", old=20, new=21) in found
    assert diff(derived, store.open_surface("0.7.4"), ["comm.MoeAlltoAll", f"{PREFILL}:plan"]) == []


def test_the_dispatch_keyword_of_moe_ep_is_renamed_in_0_7_3() -> None:
    name = "moe_ep.MoEEpCommunication.dispatch"
    found = diff(store.open_surface("0.7.2.post1"), store.open_surface("0.7.3"), [name])
    renamed = [one for one in found if isinstance(one, kinds.ParameterRenamed)]
    assert [(one.parameter, one.to, one.provenance) for one in renamed] == [
        ("max_tokens_per_rank", "runtime_max_tokens_per_rank", "known")
    ]

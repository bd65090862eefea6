"""comm.trtllm_alltoall.MnnvlMoe on the installed release, as vLLM uses it."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import flashinfer_compat.comm.trtllm_alltoall as two_sided
import pytest
import torch

from flashinfer_compat import InvalidArgument, UnsupportedArgument

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

RANKS, RANK, TOKENS, TOP_K, EXPERTS = 2, 1, 8, 2, 8


def test_the_names() -> None:
    fields = [field.name for field in dataclasses.fields(two_sided.MoEAlltoallInfo)]
    assert fields == [
        "local_gather_indices",
        "send_rank_count_cumsum",
        "send_rank_local_indices",
        "recv_rank_count_cumsum",
        "recv_rank_local_indices",
        "backward_recv_rank_local_indices",
        "local_token_allocation_count",
    ]
    ids = torch.tensor([[0, 3], [4, 7]])
    assert two_sided.MnnvlMoe.compute_target_rank_id(ids, EXPERTS, RANKS).tolist() == [[0, 0], [1, 1]]


class Module(SimpleNamespace):
    """Stands for the compiled module: rows come back as they went, and the calls are kept."""

    calls: list[tuple[str, tuple[Any, ...]]]

    def get_moe_commworkspace_size_per_rank(self, ranks: int) -> int:
        return 64 * ranks

    def get_moe_prepare_workspace_size_per_rank(self, ranks: int) -> int:
        return 32 * ranks

    def moe_prepare(self, *arguments: Any) -> None:
        self.calls.append(("prepare", arguments))

    def moe_comm(self, *arguments: Any) -> None:
        self.calls.append(("comm", arguments))
        arguments[3].fill_(1)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, release: str) -> Iterator[Module]:
    if release not in ("0.7.3", "0.7.4"):
        pytest.skip("FlashInfer's own class")
    mnnvl = importlib.import_module("flashinfer.comm.mnnvl")
    kernels = importlib.import_module("flashinfer.moe_ep.backends.split.comm.nvlink_two_sided.kernels")
    made = Module(calls=[])

    class Memory:
        def __init__(self, mapping: Any, size: int) -> None:
            self.size = size

        def as_torch_strided_tensor(self, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(RANKS, self.size // 8, dtype=dtype)

    monkeypatch.setattr(mnnvl, "MnnvlMemory", Memory)
    monkeypatch.setattr(kernels, "get_nvlink_two_sided_alltoall_module", lambda: made)
    yield made
    for name in ("workspace", "prepare_workspace", "workspace_tensor", "prepare_workspace_tensor", "mapping"):
        setattr(two_sided.MnnvlMoe, f"moe_{name}", None)


def prepare(**changed: Any) -> Any:
    arguments = {
        "expert_ids": torch.zeros(3, TOP_K, dtype=torch.int32),
        "scales": torch.ones(3, TOP_K),
        "expert_statics": None,
        "workspace": two_sided.MnnvlMoe.get_moe_prepare_workspace(SimpleNamespace(tp_size=RANKS)),
        "max_token_count_per_rank": TOKENS,
        "ep_rank": RANK,
        "ep_size": RANKS,
        "expert_count": EXPERTS,
        "slot_count": EXPERTS,
        "top_k": TOP_K,
    }
    return two_sided.MnnvlMoe.mnnvl_moe_alltoallv_prepare_without_allgather(**{**arguments, **changed})


def test_a_round_as_vllm_runs_it(module: Module) -> None:
    mapping = SimpleNamespace(tp_size=RANKS)
    workspace = two_sided.MnnvlMoe.get_moe_workspaces(mapping)
    assert two_sided.MnnvlMoe.get_moe_workspaces(mapping) is workspace
    assert (workspace.dtype, workspace.shape) == (torch.uint64, (RANKS, 16))
    info, ids, scales, statistics = prepare()
    assert (ids.shape, scales.shape, statistics) == ((16, TOP_K), (16, TOP_K), None)
    assert info.local_token_allocation_count == 16
    rows = torch.zeros(3, 8, dtype=torch.bfloat16)
    sent = two_sided.MnnvlMoe.mnnvl_moe_alltoallv(rows, info, workspace, RANK, RANKS)
    assert (sent.shape, sent.dtype) == ((16, 8), torch.bfloat16)
    result = two_sided.MnnvlMoe.mnnvl_moe_alltoallv_combine(sent, info, workspace, RANK, RANKS, TOP_K, 3)
    assert result.tolist() == [[TOP_K] * 8] * 3, "each of a token's rows once"
    (_, forth), (_, back) = module.calls[1:]
    assert forth[1] is info.send_rank_count_cumsum
    assert forth[4] is info.recv_rank_count_cumsum
    assert back[1] is info.recv_rank_count_cumsum
    assert back[2] is info.recv_rank_local_indices
    assert back[5] is info.backward_recv_rank_local_indices


def test_nothing_is_launched_for_what_is_refused(module: Module) -> None:
    for changed in (
        {"expert_count": 6},
        {"slot_count": 6},
        {"max_token_count_per_rank": 2},
        {"scales": torch.ones(3, TOP_K, dtype=torch.bfloat16)},
    ):
        with pytest.raises(InvalidArgument):
            prepare(**changed)
    info, *_ = prepare()
    for rows in (torch.zeros(3, 7, dtype=torch.bfloat16), torch.zeros(1, 3, 8)):
        with pytest.raises(InvalidArgument, match="16 bytes"):
            two_sided.MnnvlMoe.mnnvl_moe_alltoallv(rows, info, None, RANK, RANKS)
    with pytest.raises(InvalidArgument, match="one mapping"):
        two_sided.MnnvlMoe.get_moe_workspaces(SimpleNamespace(tp_size=4))
    with pytest.raises(UnsupportedArgument, match="prepare_without_allgather"):
        two_sided.MnnvlMoe.mnnvl_moe_alltoallv_prepare(*[None] * 9)
    assert [name for name, _ in module.calls] == ["prepare"]

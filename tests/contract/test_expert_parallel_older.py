"""moe_ep's communication where it lies over comm.MoeAlltoAll: 0.7.1, where it is the facade's, and 0.7.2."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import flashinfer_compat.moe_ep as moe_ep
import pytest
import torch

from flashinfer_compat import InvalidArgument, RoundError, UnsupportedArgument
from flashinfer_compat.bridges import expert_parallel, one_sided
from flashinfer_compat.bridges.expert_parallel import Rounds

from .test_expert_parallel_legacy import EXPERTS, HIDDEN, RANK, RANKS, TOKENS, TOP_K, Kernels, kernels, newest

__all__ = ["kernels", "newest"]


class Group:
    """A communicator whose other ranks answer what `others` says."""

    def __init__(self, others: bool = True) -> None:
        self.others = others

    def Get_size(self) -> int:
        return RANKS

    def Get_rank(self) -> int:
        return RANK

    def allgather(self, value: Any) -> list[Any]:
        return [self.others, value]


@pytest.fixture(autouse=True)
def _platform(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    if release in ("0.7.3", "0.7.4"):
        pytest.skip("FlashInfer's own, over other kernels")
    monkeypatch.setattr(one_sided, "nvlink_supported", lambda: True)
    if release != "0.7.1":
        base = "flashinfer.moe_ep.backends.split.comm."
        for module in ("nvlink_common", "nvlink_one_sided.communication"):
            monkeypatch.setattr(importlib.import_module(base + module), "nvlink_platform_supported", lambda: True)


@pytest.fixture
def made(kernels: Kernels) -> Any:
    return make()


def make(config: Any = None, **changed: Any) -> Any:
    sizes = {"num_experts": EXPERTS, "top_k": TOP_K, "max_tokens_per_rank": TOKENS, "hidden_size": HIDDEN}
    params = moe_ep.MoEEpCommParams(**{**sizes, **changed})
    bootstrap = SimpleNamespace(world_size=RANKS, rank=RANK, process_group=None)
    config = config or moe_ep.NVLinkOneSidedConfig(comm_backend=Group())
    return moe_ep.create_communication(bootstrap, params, config)


def rows(count: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.zeros(count, TOP_K, dtype=torch.int64)
    return torch.zeros(count, HIDDEN, dtype=torch.bfloat16), ids, torch.ones(count, TOP_K)


def test_a_round_as_vllm_runs_it(made: Any, kernels: Kernels) -> None:
    assert isinstance(made, moe_ep.NVLinkOneSidedAlltoAll)
    assert made.params.max_tokens_per_rank == TOKENS
    assert made.config.extra_payload_bytes_per_token == 0
    assert made.is_workload_feasible(TOKENS)
    assert not made.is_workload_feasible(TOKENS + 1)
    result = made.dispatch(*rows(), runtime_max_tokens_per_rank=4)
    assert isinstance(result, moe_ep.MoEEpDispatchResult)
    assert result.hidden_states.shape == (RANKS * 4, HIDDEN)
    assert (result.topk_ids.dtype, result.topk_ids.shape) == (torch.int32, (RANKS * 4, TOP_K))
    assert (result.tokens_per_rank, result.hidden_states_scale, result.eplb_gathered_stats) == (4, None, None)
    buffer = made.get_combine_input_buffer(torch.bfloat16)
    assert buffer.shape == (RANKS * 4, HIDDEN)
    made.combine(buffer)
    assert kernels.launched == ["dispatch", "sanitize_expert_ids", "combine"]
    (arguments,) = kernels.called("combine")
    assert arguments[9] is True, "the payload is where it belongs"


def test_the_capacity_is_the_rounds_size_by_default(made: Any) -> None:
    assert made.dispatch(*rows()).tokens_per_rank == TOKENS


def test_the_older_spelling(made: Any) -> None:
    with pytest.warns(DeprecationWarning, match="max_tokens_per_rank is called runtime_max_tokens_per_rank"):
        assert made.dispatch(*rows(), max_tokens_per_rank=4).tokens_per_rank == 4


def test_rounds_of_two_that_share_a_workspace(made: Any, kernels: Kernels) -> None:
    other = make()
    assert other.alltoall.workspace.data_ptr() == made.alltoall.workspace.data_ptr()
    made.dispatch(*rows())
    with pytest.raises(RoundError, match="shares this workspace"):
        other.dispatch(*rows())
    with pytest.raises(RoundError, match="combine called before dispatch"):
        other.combine(torch.zeros(RANKS * TOKENS, HIDDEN))
    made.destroy()
    other.dispatch(*rows())
    assert kernels.launched.count("dispatch") == 2
    assert len(Rounds._open) == 2, "its own, and its all-to-all's"


def test_nothing_is_launched_for_what_is_refused(made: Any, kernels: Kernels) -> None:
    for size in (0, 2, 9):
        with pytest.raises(InvalidArgument):
            made.dispatch(*rows(), runtime_max_tokens_per_rank=size)
    with pytest.raises(InvalidArgument, match="enable_rank_mask"):
        made.dispatch(*rows(), active_rank_mask=torch.ones(1, dtype=torch.uint64))
    with pytest.raises(RoundError, match="before dispatch"):
        made.get_combine_input_buffer(torch.bfloat16)
    made.destroy()
    made.destroy()
    with pytest.raises(RoundError, match="destroyed"):
        made.dispatch(*rows())
    assert kernels.launched == []


def test_ids_out_of_range_travel_and_are_not_routed_by(made: Any, kernels: Kernels) -> None:
    hidden, _, weights = rows(2)
    ids = torch.tensor([[-1, 3], [EXPERTS, -1]])
    made.dispatch(hidden, ids, weights)
    (arguments,) = kernels.called("dispatch")
    assert arguments[0].tolist() == [[3, 3], [2, 2]], "the token's other, or its own rank's first"
    assert arguments[1][1].tolist() == ids.tolist()


def test_masks_are_checked_before_any_launch(kernels: Kernels) -> None:
    made = make(moe_ep.NVLinkOneSidedConfig(comm_backend=Group(), enable_rank_mask=True))
    mask = made.active_rank_mask([RANK])
    assert (mask.dtype, mask.device.type, mask.tolist()) == (torch.uint64, "cpu", [2])
    with pytest.raises(InvalidArgument, match="not all in"):
        made.active_rank_mask([RANKS])
    with pytest.raises(InvalidArgument, match="mark this rank, 1"):
        made.dispatch(*rows(), active_rank_mask=made.active_rank_mask([0]))
    assert kernels.launched == []
    made.dispatch(*rows(), active_rank_mask=mask)


def test_a_checkpoint_is_between_rounds(made: Any, kernels: Kernels) -> None:
    made.dispatch(*rows())
    with pytest.raises(RoundError, match="between dispatch and combine"):
        made.checkpoint_prepare()
    made.combine(torch.zeros(RANKS * TOKENS, HIDDEN, dtype=torch.bfloat16))
    made.alltoall.mnnvl_mem.mapped = False
    with pytest.raises(RuntimeError, match="unmapped"):
        made.dispatch(*rows())
    assert kernels.launched.count("dispatch") == 1
    assert (made.lamport_enabled, made.lamport_max_tokens) == (False, 0)


def test_the_combine_region_is_where_it_was(made: Any) -> None:
    found = set()
    for size in (2, 8, 4):
        made.dispatch(*rows(2), runtime_max_tokens_per_rank=size)
        buffer = made.get_combine_input_buffer(torch.bfloat16)
        found.add(buffer.data_ptr())
        made.combine(buffer)
    assert len(found) == 1


def test_a_rank_that_cannot_fails_all(kernels: Kernels) -> None:
    with pytest.raises(RuntimeError, match=r"ranks \[0\]"):
        make(moe_ep.NVLinkOneSidedConfig(comm_backend=Group(others=False)))


@pytest.mark.parametrize(
    "changed", [{"num_experts": 0}, {"top_k": 5}, {"invalid_expert_id": 0}, {"dispatch_format": "bf16"}]
)
def test_params_that_no_release_takes(changed: dict[str, Any]) -> None:
    sizes = {"num_experts": EXPERTS, "top_k": TOP_K, "max_tokens_per_rank": TOKENS, "hidden_size": HIDDEN}
    with pytest.raises(ValueError, match="MoEEpCommParams"):
        moe_ep.MoEEpCommParams(**{**sizes, **changed})


def test_bytes_of_a_token() -> None:
    from flashinfer.fused_moe.api import QuantFormat

    def of(name: str | None) -> int:
        return int(
            moe_ep.MoEEpCommParams(8, 2, 8, 256, dispatch_format=name and QuantFormat[name]).dispatch_bytes_per_token
        )

    names = (None, "BF16", "FP8PerTensor", "DeepSeekFp8", "MXFP8", "NVFP4", "MXFP4")
    assert [of(name) for name in names] == [512, 512, 256, 264, 264, 144, 136]


def test_options_that_only_0_7_4_has() -> None:
    config = moe_ep.NVLinkOneSidedConfig
    assert config(cft=None, lamport=None, timeout_sec=300, enable_pdl=None).backend_name == "nvlink_one_sided"
    for options in ({"timeout_sec": 10}, {"lamport": True}):
        with pytest.raises(UnsupportedArgument, match=r"0\.7\.4 and later have it"):
            config(**options)


def test_backends(release: str) -> None:
    with pytest.raises(KeyError, match="unknown communication backend"):
        moe_ep.create_communication(None, None, "carrier_pigeon")
    with pytest.raises(TypeError, match="backend"):
        moe_ep.create_communication(None, None, 7)
    if release == "0.7.1":  # elsewhere it asks a driver
        assert moe_ep.available_communication_backends() == ["nvlink_one_sided"]


def test_what_0_7_1_has_not_is_not_there(release: str) -> None:
    for name in ("CakeAlltoAll", "NVLinkTwoSidedAlltoAll", "NVLinkTwoSidedConfig"):
        assert hasattr(moe_ep, name) is (release != "0.7.1")


def test_cakes_object_becomes_the_facades_too(release: str) -> None:
    if release == "0.7.1":
        pytest.skip("FlashInfer has none")
    from flashinfer.moe_ep import CakeAlltoAll

    made = object.__new__(CakeAlltoAll)
    assert type(expert_parallel.of_the_facade(made)) is moe_ep.CakeAlltoAll
    assert made.alltoall_backend == "cake"

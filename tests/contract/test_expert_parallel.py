"""moe_ep's communication on the installed release: one spelling, one set of rules, checked before any launch."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import flashinfer_compat.moe_ep as moe_ep
import pytest
import torch

from flashinfer_compat import InvalidArgument, RoundError
from flashinfer_compat.bridges.communication import rounds_of

HIDDEN, TOP_K, TOKENS = 16, 2, 8


class RecordingModule(SimpleNamespace):
    """Stands for the compiled all-to-all module: rows arrive where nobody sent any, and the step size is kept."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def moe_a2a_dispatch(self, ids: Any, payloads: Any, workspace: Any, metainfo: Any, tokens: int, *rest: Any) -> Any:
        self.sizes.append(tokens)
        size = workspace.shape[0] * tokens
        offsets, at = [], 0
        for payload in payloads:
            offsets.append(at)
            at += size * payload.shape[1] * payload.element_size()
        # The three results of both generations; the older one also returns sizes.
        return (offsets, at, -1) if self.newest else (offsets, [p.shape[1] for p in payloads], at, -1)

    def moe_a2a_sanitize_expert_ids(self, *arguments: Any) -> None: ...

    def moe_a2a_combine(self, *arguments: Any) -> None:
        self.sizes.append(arguments[4])


@pytest.fixture
def communication(monkeypatch: pytest.MonkeyPatch, release: str) -> Iterator[Any]:
    """An instance on host memory, whose kernels are recorded: its constructor needs a GPU and peers."""
    if release not in ("0.7.3", "0.7.4"):
        pytest.skip("built over comm.MoeAlltoAll here, whose kernels are torch operations")
    made = recorded()
    yield made
    rounds_of(made).close()


def recorded() -> Any:
    """An instance of 0.7.3's and later class without its constructor."""
    module = RecordingModule()
    module.newest = True
    cls = moe_ep.NVLinkOneSidedAlltoAll
    made = cls.__new__(cls)
    made.params = moe_ep.MoEEpCommParams(num_experts=4, top_k=TOP_K, max_tokens_per_rank=TOKENS, hidden_size=HIDDEN)
    made.config = moe_ep.NVLinkOneSidedConfig()
    made.ep_rank, made.ep_size, made.lamport_max_tokens, made._enable_pdl = 0, 2, 0, False
    made.workspace = torch.zeros(2, 1 << 16, dtype=torch.uint8)
    made.metainfo = torch.full((64,), 1 << 16)
    made._index = SimpleNamespace(COMBINE_INPUT_SIZE_INDEX=0)
    made._rank_bytes, made._round, made._module = made.workspace[0], None, module
    made._state = {"round_owner": None, "views": {}, "cft_ready": False, "refcount": 2}
    made.module = module
    return made


def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(count, HIDDEN, dtype=torch.bfloat16), torch.zeros(count, TOP_K, dtype=torch.int32)


@pytest.mark.parametrize("keyword", ["runtime_max_tokens_per_rank", "max_tokens_per_rank"])
@pytest.mark.filterwarnings("ignore:max_tokens_per_rank is called:DeprecationWarning")
def test_both_spellings_reach_the_kernel(communication: Any, keyword: str) -> None:
    result = communication.dispatch(*rows(3), **{keyword: 4})
    assert result.tokens_per_rank == 4
    combined = communication.combine(torch.zeros(8, HIDDEN, dtype=torch.bfloat16))
    assert combined.shape == (3, HIDDEN)
    assert communication.module.sizes == [4, 4]


def test_the_older_spelling_names_the_newer(communication: Any) -> None:
    with pytest.warns(DeprecationWarning, match="runtime_max_tokens_per_rank"):
        communication.dispatch(*rows(3), max_tokens_per_rank=4)


def test_nothing_is_launched_for_what_is_refused(communication: Any) -> None:
    for size in ({"runtime_max_tokens_per_rank": 2}, {"runtime_max_tokens_per_rank": 9}):
        with pytest.raises(InvalidArgument):
            communication.dispatch(*rows(3), **size)
    with pytest.raises(InvalidArgument, match="enable_rank_mask"):
        communication.dispatch(*rows(3), active_rank_mask=torch.ones(4, dtype=torch.uint64))
    with pytest.raises(RoundError, match="before dispatch"):
        communication.combine(torch.zeros(8, HIDDEN))
    with pytest.raises(RoundError, match="before dispatch"):
        communication.get_combine_input_buffer(torch.bfloat16)
    assert communication.module.sizes == []


def test_a_combine_has_its_rounds_rows(communication: Any) -> None:
    communication.dispatch(*rows(3), runtime_max_tokens_per_rank=4)
    with pytest.raises(InvalidArgument, match="expert_output"):
        communication.combine(torch.zeros(10, HIDDEN))
    with pytest.raises(RoundError, match="twice"):
        communication.dispatch(*rows(3))
    assert communication.module.sizes == [4]


def test_an_unmapped_workspace_is_not_used(communication: Any) -> None:
    """FlashInfer 0.7.4 itself would fault on the device."""
    communication._state["mnnvl_mem"] = SimpleNamespace(mapped=False)
    with pytest.raises(RoundError, match="checkpoint_restore comes first"):
        communication.dispatch(*rows(3))
    assert communication.module.sizes == []


def test_a_checkpoint_inside_a_round(communication: Any) -> None:
    communication.dispatch(*rows(3))
    with pytest.raises(RoundError, match="between dispatch and combine"):
        communication.checkpoint_prepare()


def test_a_mask_marks_its_own_rank(communication: Any) -> None:
    communication.config.enable_rank_mask = True
    for mask in (torch.tensor([2, 0, 0, 0], dtype=torch.uint64), torch.zeros(0, dtype=torch.uint64)):
        with pytest.raises(InvalidArgument, match="mark this rank, 0"):
            communication.dispatch(*rows(3), active_rank_mask=mask)
    assert communication.module.sizes == []


def test_use_after_destroy(communication: Any) -> None:
    communication.destroy()
    communication.destroy()
    with pytest.raises(RoundError, match="destroyed"):
        communication.dispatch(*rows(3))


@pytest.mark.parametrize("name", ["NVLinkOneSidedAlltoAll", "NVLinkTwoSidedAlltoAll", "CakeAlltoAll"])
def test_the_facades_classes_are_flashinfers(name: str, release: str) -> None:
    from flashinfer import moe_ep as native

    if release == "0.7.1":
        pytest.skip("FlashInfer has none")

    extended = getattr(moe_ep, name)
    assert issubclass(extended, getattr(native, name))
    assert not getattr(extended, "__abstractmethods__", None)


def test_an_unknown_backend_is_flashinfers_to_name() -> None:
    with pytest.raises(KeyError, match="unknown communication backend"):
        moe_ep.create_communication(None, None, "carrier_pigeon")

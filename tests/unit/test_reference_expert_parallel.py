"""The plain-PyTorch expert-parallel communication: alone, and between processes over gloo, against the dense answer."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the reference is in PyTorch")

from flashinfer_compat import InvalidArgument, RoundError, UnsupportedArgument  # noqa: E402
from flashinfer_compat.reference import expert_parallel as reference  # noqa: E402

EXPERTS, TOP_K, CAPACITY, HIDDEN = 8, 3, 16, 32


class Tokens:
    """What every rank sends in one round; each rank makes all of it, so that each knows the whole answer."""

    def __init__(self, counts: list[int], seed: int, invalid: float = 0.0) -> None:
        made = torch.Generator().manual_seed(seed)
        self.hidden = [torch.randn(count, HIDDEN, generator=made).bfloat16() for count in counts]
        self.ids = [
            torch.rand(count, EXPERTS, generator=made).argsort(1)[:, :TOP_K].to(torch.int32) for count in counts
        ]
        self.weights = [torch.rand(count, TOP_K, generator=made) for count in counts]
        for ids in self.ids:
            dropped = torch.rand(ids.shape, generator=made) < invalid
            ids[dropped] = torch.where(torch.rand(ids.shape, generator=made) < 0.5, -1, EXPERTS + 5).int()[dropped]

    def of(self, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.hidden[rank], self.ids[rank], self.weights[rank]

    def dense(self, rank: int, experts: list[range]) -> torch.Tensor:
        """The sum over ranks, given by the experts each has, of what it makes of this rank's tokens in bfloat16."""
        return sum(expert_sum(*self.of(rank), mine).bfloat16().float() for mine in experts)  # type: ignore[return-value]


def expert_sum(hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, mine: range) -> torch.Tensor:
    """Weighted sum over this rank's experts, the e-th of which scales a row by e + 1; zero for rows without any."""
    total = torch.zeros(hidden.shape)
    for k in range(ids.shape[1]):
        factor = torch.where((ids[:, k] >= mine.start) & (ids[:, k] < mine.stop), weights[:, k] * (ids[:, k] + 1), 0.0)
        total += factor[:, None] * hidden.float()
    return total


def experts_of(rank: int, ranks: int) -> range:
    share = EXPERTS // ranks
    return range(rank * share, (rank + 1) * share)


def make(rank: int = 0, ranks: int = 1, config: dict[str, Any] | None = None, **sizes: Any) -> Any:
    params = reference.MoEEpCommParams(
        **{"num_experts": EXPERTS, "top_k": TOP_K, "max_tokens_per_rank": CAPACITY, "hidden_size": HIDDEN, **sizes}
    )
    return reference.create_communication(
        reference.BootstrapConfig(ranks, rank), params, reference.NVLinkOneSidedConfig(**config or {})
    )


def step(communication: Any, tokens: Tokens, size: int, in_place: bool = True, **options: Any) -> torch.Tensor:
    """A layer's forward, as an engine has it."""
    received = communication.dispatch(*tokens.of(communication.ep_rank), runtime_max_tokens_per_rank=size, **options)
    assert received.hidden_states.shape == (communication.ep_size * size, HIDDEN)
    masks = {key: value for key, value in options.items() if key == "active_rank_mask"}
    mine = experts_of(communication.ep_rank, communication.ep_size)
    result = expert_sum(received.hidden_states, received.topk_ids, received.topk_weights, mine).bfloat16()
    # Nothing may come of rows that hold no token, whatever is in them.
    result[(received.topk_ids == -1).all(1)] = float("nan")
    if not in_place:
        return communication.combine(result, **masks)
    return communication.combine(communication.get_combine_input_buffer(torch.bfloat16).copy_(result), **masks)


# Between processes. Each function is run by every rank.


def uneven_rounds(rank: int, ranks: int) -> None:
    communication = make(rank, ranks)
    everyone = [experts_of(each, ranks) for each in range(ranks)]
    for seed, size in enumerate((16, 1, 7, 16, 3)):
        # The first rank is full, the last is empty; others between.
        tokens = Tokens([size * (ranks - 1 - each) // (ranks - 1) for each in range(ranks)], seed)
        combined = step(communication, tokens, size, in_place=bool(seed % 2))
        assert combined.dtype is torch.bfloat16
        assert torch.equal(combined, tokens.dense(rank, everyone).bfloat16())
    communication.destroy()


def what_arrives(rank: int, ranks: int) -> None:
    communication = make(rank, ranks, {"eplb_stats_num_experts": EXPERTS})
    tokens = Tokens([5] * ranks, 1)
    statistics = torch.arange(EXPERTS, dtype=torch.int32) + 100 * rank
    received = communication.dispatch(
        *tokens.of(rank),
        hidden_states_scale=tokens.hidden[rank][:, :4].float().contiguous(),
        runtime_max_tokens_per_rank=6,
        eplb_local_stats=statistics,
    )
    assert received.eplb_gathered_stats.tolist() == [[100 * each + e for e in range(EXPERTS)] for each in range(ranks)]
    mine = experts_of(rank, ranks)
    for source in range(ranks):
        hidden, ids, weights = tokens.of(source)
        chosen = ((ids >= mine.start) & (ids < mine.stop)).any(1)
        rows = slice(source * 6, source * 6 + int(chosen.sum()))
        assert torch.equal(received.hidden_states[rows], hidden[chosen])
        assert torch.equal(received.topk_ids[rows], ids[chosen])
        assert torch.equal(received.topk_weights[rows], weights[chosen])
        assert torch.equal(received.hidden_states_scale[rows], hidden[chosen][:, :4].float())
        assert bool((received.topk_ids[rows.stop : source * 6 + 6] == -1).all())
    communication.combine(torch.zeros(ranks * 6, HIDDEN))
    communication.destroy()


def dropped_ids(rank: int, ranks: int) -> None:
    communication = make(rank, ranks)
    tokens = Tokens([9] * ranks, 2, invalid=0.6)
    assert any(bool(((ids < 0) | (ids >= EXPERTS)).all(1).any()) for ids in tokens.ids), "a token without an expert"
    everyone = [experts_of(each, ranks) for each in range(ranks)]
    assert torch.equal(step(communication, tokens, 9), tokens.dense(rank, everyone).bfloat16())


def masked_ranks(rank: int, ranks: int) -> None:
    """The last rank is gone: it takes part in nothing, and what was for it is dropped."""
    active = list(range(ranks - 1))
    communication = make(rank, ranks, {"enable_rank_mask": True})
    everyone = [experts_of(each, ranks) for each in range(ranks)]
    tokens = Tokens([4] * ranks, 3)
    with pytest.raises(InvalidArgument, match="requires an active_rank_mask"):
        communication.dispatch(*tokens.of(rank))
    with pytest.raises(InvalidArgument, match=f"mark this rank, {rank}"):
        communication.dispatch(*tokens.of(rank), active_rank_mask=communication.active_rank_mask([(rank + 1) % ranks]))
    mask = communication.active_rank_mask(range(ranks))
    assert torch.equal(step(communication, tokens, 4, active_rank_mask=mask), tokens.dense(rank, everyone).bfloat16())
    if rank in active:
        mask = communication.active_rank_mask(active)
        assert torch.equal(
            step(communication, tokens, 4, active_rank_mask=mask), tokens.dense(rank, everyone[:-1]).bfloat16()
        )
    communication.destroy()


def refused_and_then_served(rank: int, ranks: int) -> None:
    """What is refused has sent nothing: the next round is whole, on ranks that were refused something and others."""
    communication = make(rank, ranks)
    tokens = Tokens([4] * ranks, 4)
    if rank == 0:
        for size in (0, 3, CAPACITY + 1):
            with pytest.raises(InvalidArgument, match="runtime_max_tokens_per_rank"):
                communication.dispatch(*tokens.of(rank), runtime_max_tokens_per_rank=size)
        with pytest.raises(RoundError, match="combine called before dispatch"):
            communication.combine(torch.zeros(ranks * 4, HIDDEN))
        with pytest.raises(InvalidArgument, match="enable_rank_mask"):
            communication.dispatch(*tokens.of(rank), active_rank_mask=communication.active_rank_mask([0]))
    received = communication.dispatch(*tokens.of(rank), runtime_max_tokens_per_rank=4)
    if rank == ranks - 1:
        with pytest.raises(RoundError, match="twice"):
            communication.dispatch(*tokens.of(rank), runtime_max_tokens_per_rank=4)
        with pytest.raises(InvalidArgument, match="expert_output"):
            communication.combine(torch.zeros(ranks * 5, HIDDEN))
    mine = experts_of(rank, ranks)
    result = expert_sum(received.hidden_states, received.topk_ids, received.topk_weights, mine).bfloat16()
    everyone = [experts_of(each, ranks) for each in range(ranks)]
    assert torch.equal(communication.combine(result), tokens.dense(rank, everyone).bfloat16())
    communication.destroy()


def older_spelling(rank: int, ranks: int) -> None:
    """comm.MoeAlltoAll as engines written for 0.7.1 use it, with experts that cannot be shared out evenly."""
    share, more = divmod(EXPERTS - 1, ranks)
    starts = [each * share + min(each, more) for each in range(ranks + 1)]
    everyone = [range(start, stop) for start, stop in itertools.pairwise(starts)]
    size = reference.moe_a2a_get_workspace_size_per_rank(ranks, CAPACITY, 2 * HIDDEN + 8 * TOP_K, 2 * HIDDEN)
    alltoall = reference.MoeAlltoAll(
        SimpleNamespace(moe_ep_size=ranks, moe_ep_rank=rank),
        max_num_tokens=CAPACITY,
        top_k=TOP_K,
        num_experts=EXPERTS - 1,
        workspace_size_per_rank=size + 128,
        mnnvl_config=reference.MnnvlConfig(comm_backend=reference.TorchDistBackend()),
    )
    tokens = Tokens([6] * ranks, 5)
    for ids in tokens.ids:
        ids[ids == EXPERTS - 1] = -1
    hidden, ids, weights = tokens.of(rank)
    received = alltoall.dispatch(ids, [hidden, ids, weights], 7, invalid_token_expert_id=-1, expert_id_payload_index=1)
    assert [tuple(each.shape) for each in received] == [(ranks, 7, HIDDEN), (ranks, 7, TOP_K), (ranks, 7, TOP_K)]
    result = expert_sum(*(each.flatten(0, 1) for each in received), everyone[rank]).bfloat16()
    buffer = alltoall.get_combine_payload_tensor_in_workspace(7, HIDDEN, torch.bfloat16)
    buffer.copy_(result.view(ranks, 7, HIDDEN))
    combined = alltoall.combine(buffer, 7, payload_in_workspace=True)
    assert torch.equal(combined, tokens.dense(rank, everyone).bfloat16())


def a_peer_that_dies(rank: int, ranks: int) -> None:
    """The last, since nobody can go on: an error, and not a wait without end."""
    communication = make(rank, ranks)
    if rank == ranks - 1:
        os._exit(0)
    with pytest.raises(RuntimeError):
        step(communication, Tokens([4] * ranks, 6), 4)


CASES: list[Callable[[int, int], None]] = [
    uneven_rounds, what_arrives, dropped_ids, refused_and_then_served, older_spelling, masked_ranks, a_peer_that_dies,
]  # fmt: skip


def run_rank(rank: int, ranks: int, store: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=120)
    )
    for case in CASES:
        case(rank, ranks)


@pytest.mark.parametrize("ranks", [2, 4])
def test_between_processes(ranks: int, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(run_rank, (ranks, str(tmp_path / "store")), nprocs=ranks)


# One process, which has no process group.


@pytest.fixture
def communication() -> Any:
    made = make()
    yield made
    made.destroy()


def test_alone(communication: Any) -> None:
    for seed, size in enumerate((16, 3, 1)):
        tokens = Tokens([size], seed, invalid=0.3)
        assert torch.equal(step(communication, tokens, size), tokens.dense(0, [range(EXPERTS)]).bfloat16())
    assert step(communication, Tokens([0], 0), 4).shape == (0, HIDDEN)


def test_the_sum_is_in_float32_and_rounded_once(communication: Any) -> None:
    tokens = Tokens([4], 0)
    communication.dispatch(*tokens.of(0), runtime_max_tokens_per_rank=4)
    given = torch.randn(4, HIDDEN)
    output = torch.empty(4, HIDDEN)
    assert communication.combine(given, output=output) is output
    assert torch.equal(output, given)


def test_rows_that_travel_as_fp8() -> None:
    communication = make(config={"use_low_precision_combine": True})
    communication.dispatch(*Tokens([4], 0).of(0), runtime_max_tokens_per_rank=4)
    given = torch.tensor([0.1, 1000.0, -1000.0, 3.3]).repeat(HIDDEN // 4).expand(4, -1).bfloat16().contiguous()
    combined = communication.combine(given)
    assert combined.dtype is torch.bfloat16
    assert combined[0, :4].tolist() == [0.1015625, 448.0, -448.0, 3.25]


def test_instances_of_the_same_sizes_share_a_workspace(communication: Any) -> None:
    other, elsewhere = make(), make(max_tokens_per_rank=CAPACITY + 1)
    tokens = Tokens([4], 0)
    communication.dispatch(*tokens.of(0))
    with pytest.raises(RoundError, match="shares this workspace"):
        other.dispatch(*tokens.of(0))
    elsewhere.dispatch(*tokens.of(0))
    elsewhere.destroy()


def test_errors(communication: Any) -> None:
    tokens = Tokens([4], 0)
    with pytest.raises(InvalidArgument, match="eplb_local_stats"):
        communication.dispatch(*tokens.of(0), eplb_local_stats=torch.zeros(EXPERTS, dtype=torch.int32))
    with pytest.raises(RoundError, match="get_combine_input_buffer called before dispatch"):
        communication.get_combine_input_buffer(torch.bfloat16)
    communication.dispatch(*tokens.of(0))
    with pytest.raises(RoundError, match="between dispatch and combine"):
        communication.checkpoint_prepare()
    with pytest.raises(InvalidArgument, match="more than the 1024 reserved"):
        communication.get_combine_input_buffer(torch.float32)
    with pytest.raises(UnsupportedArgument, match="mxfp8_quantize"):
        communication.combine(torch.zeros(CAPACITY, HIDDEN).to(torch.float8_e4m3fn))
    communication.combine(torch.zeros(CAPACITY, HIDDEN).half())
    communication.destroy()
    communication.destroy()
    for call in (lambda: communication.dispatch(*tokens.of(0)), lambda: communication.combine(torch.zeros(4, HIDDEN))):
        with pytest.raises(RoundError, match="destroyed"):
            call()


def test_a_checkpoint(communication: Any) -> None:
    tokens = Tokens([4], 0)
    communication.checkpoint_prepare()
    with pytest.raises(RoundError, match="checkpoint_restore comes first"):
        communication.dispatch(*tokens.of(0))
    communication.checkpoint_restore(None)
    assert torch.equal(step(communication, tokens, 4), tokens.dense(0, [range(EXPERTS)]).bfloat16())


def test_what_it_is_made_for() -> None:
    for sizes in ({"top_k": 5}, {"num_experts": 0}, {"invalid_expert_id": 0}):
        with pytest.raises(InvalidArgument):
            make(**sizes)
    with pytest.raises(InvalidArgument, match="rank 0 of 1"):
        make(0, 2)
    with pytest.raises(InvalidArgument, match="TorchDistBackend"):
        make(config={"comm_backend": object()})
    with pytest.raises(KeyError, match="unknown communication backend 'cake'"):
        reference.create_communication(reference.BootstrapConfig(1, 0), None, "cake")
    with pytest.raises(InvalidArgument, match="rank 1 is not among the 1"):
        reference.BootstrapConfig(1, 1)
    for option in ({"cft": True}, {"lamport": True}):
        with pytest.raises(UnsupportedArgument, match="the reference in plain PyTorch has not"):
            reference.NVLinkOneSidedConfig(**option)
    assert reference.NVLinkOneSidedConfig(timeout_sec=5).comm_backend is None
    made = make()
    assert (made.backend_name, made.supports_cuda_graph, made.num_local_experts) == ("nvlink_one_sided", False, EXPERTS)
    assert made.is_workload_feasible(CAPACITY)
    assert made.params.hidden_size == HIDDEN


def test_the_older_spelling_of_the_size(communication: Any) -> None:
    with pytest.warns(DeprecationWarning, match="runtime_max_tokens_per_rank"):
        assert communication.dispatch(*Tokens([4], 0).of(0), max_tokens_per_rank=4).tokens_per_rank == 4


def test_flashinfer_is_not_imported() -> None:
    script = "import sys, flashinfer_compat.reference.expert_parallel; assert 'flashinfer' not in sys.modules"
    path = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": path})

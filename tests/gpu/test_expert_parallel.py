"""Dispatch, experts and combine on a device, written once for moe_ep's API and once for comm.MoeAlltoAll's.

Both run on every release through the facade: against the answer of the dense layer, in captured graphs, with rounds of
random sizes, masks, ids out of range and checkpoints. One rank is a process by itself: kernels, routing, layouts and
graphs are all there, but nobody waits for anybody. More ranks are as many as there are GPUs, or two processes on one
GPU where there is one (`ranks.py` says how): then what a rank sends is written by another process, and the waiting is
real, but no NVLink carries it. With at most two ranks the sum has one order, so that outputs are the same bits on each
release; from three on FlashInfer 0.7.3 and later add in another order than older kernels.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import flashinfer_compat.moe_ep as moe_ep
import pytest
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat import InvalidArgument, RoundError
from flashinfer_compat.bridges import moe_alltoall

from .ranks import Ranks

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

EXPERTS, TOP_K, CAPACITY, HIDDEN = 16, 4, 64, 2048
#: The kernels are compiled by the first test.
BUILD_SECONDS = 280


def experts_of(rank: int, ranks: int) -> range:
    share = EXPERTS // ranks
    return range(rank * share, (rank + 1) * share)


class Layer:
    """Experts that scale each column by a number of their own: elementwise, so that a row's bits do not depend on where
    it lies. The same on every rank and release."""

    def __init__(self) -> None:
        made = torch.Generator().manual_seed(7)
        self.scales = (0.5 + torch.rand(EXPERTS, HIDDEN, generator=made)).cuda()

    def partial(self, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, mine: range) -> torch.Tensor:
        """The weighted sum over the experts `mine`, fp32; zero for a row without any."""
        total = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
        for k in range(ids.shape[1]):
            chosen = (ids[:, k] >= mine.start) & (ids[:, k] < mine.stop)
            factor = torch.where(chosen, weights[:, k], 0.0)
            total += factor[:, None] * (hidden.float() * self.scales[ids[:, k].clamp(mine.start, mine.stop - 1)])
        return total

    def expected(
        self, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, shares: list[range]
    ) -> torch.Tensor:
        """The sum in fp32 of what each rank makes of these tokens in bfloat16, rounded once."""
        parts = [self.partial(hidden, ids, weights, share).bfloat16().float() for share in shares]
        return sum(parts[1:], parts[0]).bfloat16()


class Tokens:
    """Hidden states, expert ids and weights, made on the host: the same on each release and each PyTorch."""

    def __init__(self, count: int, seed: int, invalid: float = 0.0) -> None:
        made = torch.Generator().manual_seed(seed)
        self.hidden = torch.randn(count, HIDDEN, generator=made).bfloat16().cuda()
        ids = torch.rand(count, EXPERTS, generator=made).argsort(1)[:, :TOP_K].to(torch.int32)
        dropped = torch.rand(count, TOP_K, generator=made) < invalid
        ids[dropped] = torch.where(torch.rand(count, TOP_K, generator=made) < 0.5, -1, EXPERTS + 3).int()[dropped]
        self.ids = ids.cuda()
        self.weights = torch.rand(count, TOP_K, generator=made).cuda()

    @property
    def all(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.hidden, self.ids, self.weights

    def part(self, start: int, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return tuple(each[start : start + count].contiguous() for each in self.all)  # type: ignore[return-value]


class NewApi:
    """An engine's layer over moe_ep.create_communication."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        *,
        capacity: int = CAPACITY,
        masks: bool = False,
        statistics: int = 0,
        **config: Any,
    ) -> None:
        self.layer, self.mine = Layer(), experts_of(rank, ranks)
        self.communication = moe_ep.create_communication(
            moe_ep.BootstrapConfig(world_size=ranks, rank=rank),
            moe_ep.MoEEpCommParams(num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=capacity, hidden_size=HIDDEN),
            moe_ep.NVLinkOneSidedConfig(enable_rank_mask=masks, eplb_stats_num_experts=statistics, **config),
        )
        self.gathered: torch.Tensor | None = None

    def mask(self, active: list[int]) -> torch.Tensor:
        return self.communication.active_rank_mask(active)

    def step(
        self, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, size: int, in_place: bool = True,
        statistics: torch.Tensor | None = None, **masked: Any,
    ) -> torch.Tensor:  # fmt: skip
        communication = self.communication
        received = communication.dispatch(
            hidden, ids, weights, runtime_max_tokens_per_rank=size, eplb_local_stats=statistics, **masked
        )
        if received.eplb_gathered_stats is not None:
            self.gathered = received.eplb_gathered_stats.clone()
        result = self.layer.partial(received.hidden_states, received.topk_ids, received.topk_weights, self.mine)
        if not in_place:
            return communication.combine(result.bfloat16(), **masked)
        return communication.combine(communication.get_combine_input_buffer(torch.bfloat16).copy_(result), **masked)

    def close(self) -> None:
        self.communication.destroy()


class OldApi:
    """The same over comm.MoeAlltoAll."""

    def __init__(
        self, rank: int, ranks: int, *, capacity: int = CAPACITY, masks: bool = False, statistics: int = 0
    ) -> None:
        comm = flashinfer.comm
        from flashinfer_compat.comm.mnnvl import MnnvlConfig, TorchDistBackend

        self.layer, self.mine, self.ranks = Layer(), experts_of(rank, ranks), ranks
        size = comm.moe_a2a_get_workspace_size_per_rank(ranks, capacity, 2 * HIDDEN + 8 * TOP_K, 2 * HIDDEN, statistics)
        self.communication = comm.MoeAlltoAll(
            comm.Mapping(
                world_size=ranks, rank=rank, gpus_per_node=ranks, tp_size=ranks, moe_ep_size=ranks
            ),
            max_num_tokens=capacity, top_k=TOP_K, num_experts=EXPERTS, workspace_size_per_rank=size,
            mnnvl_config=MnnvlConfig(comm_backend=TorchDistBackend()), eplb_stats_num_experts=statistics,
            enable_rank_mask=masks,
        )  # fmt: skip
        self.gathered: torch.Tensor | None = None

    def mask(self, active: list[int]) -> torch.Tensor:
        return flashinfer.comm.moe_a2a_active_rank_mask(active, self.ranks)

    def step(
        self, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, size: int, in_place: bool = True,
        statistics: torch.Tensor | None = None, **masked: Any,
    ) -> torch.Tensor:  # fmt: skip
        alltoall = self.communication
        received = alltoall.dispatch(
            ids, [hidden, ids, weights], size, invalid_token_expert_id=-1, expert_id_payload_index=1,
            eplb_local_stats=statistics, **masked,
        )  # fmt: skip
        if alltoall.eplb_gathered_stats is not None:
            self.gathered = alltoall.eplb_gathered_stats.clone()
        result = self.layer.partial(*(each.flatten(0, 1) for each in received), self.mine)
        result = result.view(self.ranks, size, HIDDEN)
        if not in_place:
            return alltoall.combine(result.bfloat16(), size, **masked)
        buffer = alltoall.get_combine_payload_tensor_in_workspace(size, HIDDEN, torch.bfloat16)
        return alltoall.combine(buffer.copy_(result), size, payload_in_workspace=True, **masked)

    def close(self) -> None:
        """The class has no end to it."""


APIS = {"moe_ep": NewApi, "comm": OldApi}


def of(api: str, rank: int, ranks: int, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return APIS[api](rank, ranks, **options)


def everyone(ranks: int) -> list[range]:
    return [experts_of(rank, ranks) for rank in range(ranks)]


def assert_answer(
    combined: torch.Tensor, layer: Layer, given: tuple[torch.Tensor, torch.Tensor, torch.Tensor], shares: list[range]
) -> None:
    """The dense answer within what bfloat16 rounds; with two ranks at most, each bit of the same sum."""
    assert combined.dtype is torch.bfloat16
    if len(shares) <= 2:
        assert torch.equal(combined, layer.expected(*given, shares))
    dense = torch.zeros(combined.shape, device="cuda")
    size = dense.clone()
    for share in shares:
        part = layer.partial(*given, share)
        dense, size = dense + part, size + part.abs()
    # Each rank's part is rounded to 8 bits, and so is the sum: an error of 2**-8 each at most.
    assert bool(((combined.float() - dense).abs() <= 2 * 2**-8 * 1.01 * size).all())


# What each rank runs.


def fixed_inputs(rank: int, ranks: int, api: str) -> list[str]:
    """Rounds of several sizes, with uneven counts and an empty rank; returns the sums of what came back."""
    engine = of(api, rank, ranks)
    digests = []
    for seed, size in enumerate((64, 1, 17, 64, 3)):
        count = [size, size // 2, 0][(rank + seed) % 3]
        given = Tokens(size, 100 * seed + rank).part(0, count)
        combined = engine.step(*given, size, in_place=bool(seed % 2))
        assert_answer(combined, engine.layer, given, everyone(ranks))
        # Zero plus minus zero is zero; a sum of one part may keep its sign.
        digests.append(hashlib.sha256((combined + 0.0).view(torch.int16).cpu().numpy().tobytes()).hexdigest())
    engine.close()
    return digests


def ids_out_of_range(rank: int, ranks: int, api: str) -> None:
    engine = of(api, rank, ranks)
    for seed, invalid in enumerate((0.3, 0.9, 1.0)):
        tokens = Tokens(CAPACITY, 1000 + 10 * seed + rank, invalid)
        assert_answer(engine.step(*tokens.all, CAPACITY), engine.layer, tokens.all, everyone(ranks))
    engine.close()


def graphs(rank: int, ranks: int, api: str) -> None:
    """A graph for each of several sizes, replayed in turn with an eager round between, and rows without a token."""
    engine = of(api, rank, ranks)
    held, outputs, captured = {}, {}, {}
    for size in (1, 16, CAPACITY):
        held[size] = Tokens(size, rank)
        engine.step(*held[size].all, size)
        torch.cuda.synchronize()
        captured[size] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured[size]):
            outputs[size] = engine.step(*held[size].all, size)
    order = random.Random(3)  # the same on each rank
    for replay in range(30):
        size = order.choice(list(captured))
        # What an engine pads a batch with: rows whose ids are no expert's.
        fresh = Tokens(size, 5000 + 10 * replay + rank, invalid=0.2)
        fresh.ids[order.randint(0, size) :] = -1
        for into, new in zip(held[size].all, fresh.all, strict=True):
            into.copy_(new)
        captured[size].replay()
        assert_answer(outputs[size], engine.layer, fresh.all, everyone(ranks))
        if replay % 5 == 0:
            eager = Tokens(order.randint(1, CAPACITY), 9000 + replay + rank)
            assert_answer(engine.step(*eager.all, len(eager.ids)), engine.layer, eager.all, everyone(ranks))
    engine.close()


def many_rounds(rank: int, ranks: int, api: str, rounds: int) -> float:
    """Rounds of random sizes and counts without a word to the host between them; returns seconds."""
    engine = of(api, rank, ranks)
    pool = Tokens(4 * CAPACITY, 77 + rank, invalid=0.1)
    sizes, counts = random.Random(5), random.Random(50 + rank)
    answer = engine.layer.expected(*pool.all, everyone(ranks))
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    began = time.perf_counter()
    for turn in range(rounds):
        size = sizes.randint(1, CAPACITY)
        count, start = counts.randint(0, size), counts.randint(0, 3 * CAPACITY)
        combined = engine.step(*pool.part(start, count), size, in_place=bool(turn % 3))
        expected = answer[start : start + count]
        # From three ranks on the order of the sum is the release's own.
        right = combined == expected if ranks <= 2 else (combined - expected).abs() <= 2**-6 * expected.abs()
        wrong += (~right).sum()
    assert int(wrong) == 0
    engine.close()
    return time.perf_counter() - began


def refused_and_then_served(rank: int, ranks: int, api: str) -> None:
    """What is refused has launched nothing: the rounds of the ranks stay together."""
    engine = of(api, rank, ranks)
    tokens = Tokens(8, rank)
    if rank == 0:
        for size in (0, 7, CAPACITY + 1):
            with pytest.raises(InvalidArgument):
                engine.step(*tokens.all, size)
        with pytest.raises(InvalidArgument, match="enable_rank_mask"):
            engine.step(*tokens.all, 8, active_rank_mask=engine.mask([0]))
        with pytest.raises(InvalidArgument, match="eplb_local_stats"):
            engine.step(*tokens.all, 8, statistics=torch.zeros(EXPERTS, dtype=torch.int32, device="cuda"))
    assert_answer(engine.step(*tokens.all, 8), engine.layer, tokens.all, everyone(ranks))
    other = of(api, rank, ranks)
    if api == "moe_ep":
        received = engine.communication.dispatch(*tokens.all, runtime_max_tokens_per_rank=8)
        for refused in (engine, other):
            with pytest.raises(RoundError):
                refused.communication.dispatch(*tokens.all, runtime_max_tokens_per_rank=8)
        with pytest.raises(InvalidArgument, match="expert_output"):
            engine.communication.combine(torch.zeros(3, HIDDEN, dtype=torch.bfloat16, device="cuda"))
        engine.communication.combine(received.hidden_states)
        engine.close()
        with pytest.raises(RoundError, match="destroyed"):
            engine.communication.dispatch(*tokens.all)
    assert_answer(other.step(*tokens.all, 8), other.layer, tokens.all, everyone(ranks))
    other.close()


def masks_and_statistics(rank: int, ranks: int, api: str) -> None:
    """Each rank goes on alone for three rounds, in which what is for its peers is dropped; then together again."""
    capacity = 24  # sizes of their own, and so a workspace of their own
    engine = of(api, rank, ranks, capacity=capacity, masks=True, statistics=EXPERTS)
    tokens = Tokens(capacity, 40 + rank)
    together, alone = engine.mask(list(range(ranks))), engine.mask([rank])
    with pytest.raises(InvalidArgument):
        engine.step(*tokens.all, capacity)
    for mask, shares in (
        (together, everyone(ranks)), *[(alone, [experts_of(rank, ranks)])] * 3, (together, everyone(ranks)),
    ):  # fmt: skip
        torch.distributed.barrier()  # nobody is still in the round before
        statistics = torch.arange(EXPERTS, dtype=torch.int32, device="cuda") + 100 * rank
        combined = engine.step(*tokens.all, capacity, statistics=statistics, active_rank_mask=mask)
        assert_answer(combined, engine.layer, tokens.all, shares)
        gathered = engine.gathered.tolist()
        for each in range(ranks) if mask is together else [rank]:
            assert gathered[each] == [100 * each + expert for expert in range(EXPERTS)]
    engine.close()


def checkpoint(rank: int, ranks: int, api: str) -> None:
    """The workspace's memory is released and brought back; a graph that was captured before it is replayed after."""
    from flashinfer_compat.comm.mnnvl import TorchDistBackend

    engine = of(api, rank, ranks, capacity=40)
    tokens = Tokens(40, 60 + rank)
    engine.step(*tokens.all, 40)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        combined = engine.step(*tokens.all, 40)
    graph.replay()
    engine.communication.checkpoint_prepare()
    with pytest.raises(RoundError, match="checkpoint_restore comes first"):
        engine.step(*tokens.all, 40)
    engine.communication.checkpoint_restore(TorchDistBackend())
    combined.zero_()
    graph.replay()
    assert_answer(combined, engine.layer, tokens.all, everyone(ranks))
    assert_answer(engine.step(*tokens.all, 40), engine.layer, tokens.all, everyone(ranks))
    engine.close()


def rows_that_travel_as_fp8(rank: int, ranks: int) -> None:
    engine = NewApi(rank, ranks, capacity=32, use_low_precision_combine=True)
    tokens = Tokens(32, 80 + rank)
    shares = everyone(ranks)
    parts = [engine.layer.partial(*tokens.all, share).bfloat16().float() for share in shares]
    largest = torch.finfo(torch.float8_e4m3fn).max
    parts = [part.clamp(-largest, largest).to(torch.float8_e4m3fn).float() for part in parts]
    expected = sum(parts[1:], parts[0]).bfloat16()
    for in_place in (True, False):
        combined = engine.step(*tokens.all, 32, in_place=in_place)
        assert combined.dtype is torch.bfloat16
        assert torch.equal(combined, expected)
    engine.close()


def a_peer_that_dies(rank: int, ranks: int) -> float:
    """Returns after how many seconds the wait for the peer ended in an error."""
    engine = NewApi(rank, ranks, timeout_sec=3)
    tokens = Tokens(8, rank)
    engine.step(*tokens.all, 8)
    torch.cuda.synchronize()
    torch.distributed.barrier()
    if rank == ranks - 1:
        os._exit(0)

    def wait_for_it() -> None:
        engine.step(*tokens.all, 8)
        torch.cuda.synchronize()

    began = time.perf_counter()
    with pytest.raises(RuntimeError):
        wait_for_it()
    return time.perf_counter() - began


# The tests.


@pytest.fixture(scope="module")
def started() -> Iterator[dict[int, Ranks]]:
    """Ranks by their number: one, and one for each GPU or two on one."""
    made = {size: Ranks(size) for size in (1, max(2, torch.cuda.device_count()))}
    yield made
    for ranks in made.values():
        ranks.stop()


@pytest.fixture(params=["one rank", "several"])
def ranks(request: pytest.FixtureRequest, started: dict[int, Ranks]) -> Ranks:
    one, several = started.values()
    return one if request.param == "one rank" else linked(several)


def linked(several: Ranks) -> Ranks:
    if not all(several.run(is_supported)):
        pytest.skip("FlashInfer finds no NVLink, or not all of them up")
    return several


def is_supported(rank: int, ranks: int) -> bool:
    return "nvlink_one_sided" in moe_ep.available_communication_backends()


@pytest.fixture(params=list(APIS))
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_dense_answer(ranks: Ranks, api: str, combined_digests: dict[str, str]) -> None:
    for rank, digests in enumerate(ranks.run(fixed_inputs, api, timeout=BUILD_SECONDS)):
        for round_, digest in enumerate(digests):
            # Both APIs give the same bits; so they have one name, and the second to come is compared with the first.
            name = f"{ranks.size} ranks, rank {rank}, round {round_}"
            assert combined_digests.setdefault(name, digest) == digest


def test_ids_out_of_range(ranks: Ranks, api: str) -> None:
    ranks.run(ids_out_of_range, api)


@pytest.mark.parametrize("top_k", [1, 4, 6, 22])
@pytest.mark.parametrize("tokens", [0, 1, 31, 1024])
def test_ids_to_route_by_are_those_of_the_host(tokens: int, top_k: int) -> None:
    """What the older kernels are given: one kernel on the device does what PyTorch's operations do on the host."""
    made = torch.Generator().manual_seed(tokens + top_k)
    ids = torch.randint(-5, 60, (tokens, top_k), generator=made, dtype=torch.int32)
    ids[::3] = torch.tensor([-1, 2**31 - 1, -(2**31)], dtype=torch.int32).repeat(8)[:top_k]
    for ep_size, ep_rank in ((1, 0), (4, 3), (7, 2)):
        instance = SimpleNamespace(num_experts=48, ep_size=ep_size, ep_rank=ep_rank)
        routed = moe_alltoall.routable(instance, ids.cuda())
        assert moe_alltoall._one_kernel(top_k, routed.get_device()) is not None
        assert routed.dtype is torch.int32
        assert torch.equal(routed.cpu(), moe_alltoall.routable(instance, ids))


def test_graphs(ranks: Ranks, api: str) -> None:
    ranks.run(graphs, api)


def test_refused_and_then_served(ranks: Ranks, api: str) -> None:
    ranks.run(refused_and_then_served, api)


def test_masks_and_statistics(ranks: Ranks, api: str) -> None:
    ranks.run(masks_and_statistics, api)


def test_checkpoint(ranks: Ranks, api: str) -> None:
    ranks.run(checkpoint, api)


def test_rows_that_travel_as_fp8(ranks: Ranks) -> None:
    ranks.run(rows_that_travel_as_fp8)


def test_many_rounds(ranks: Ranks, api: str) -> None:
    ranks.run(many_rounds, api, 1000, timeout=110)


def test_a_peer_that_dies(started: dict[int, Ranks], release: str) -> None:
    if release not in ("0.7.3", "0.7.4"):
        pytest.skip("its kernels wait 300 seconds, a constant")
    several = linked(list(started.values())[-1])
    seconds = several.run(a_peer_that_dies, dying=[several.size - 1])
    assert all(each is None or each < 30 for each in seconds)

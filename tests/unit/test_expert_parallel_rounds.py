"""The rules of dispatch and combine rounds, which every release keeps through the facade."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="payloads are tensors")

from flashinfer_compat import InvalidArgument, RoundError  # noqa: E402
from flashinfer_compat.bridges import moe_alltoall  # noqa: E402
from flashinfer_compat.bridges.expert_parallel import Rounds  # noqa: E402


@pytest.fixture
def rounds() -> Iterator[Rounds]:
    made = Rounds(capacity=8, top_k=2, workspace="a")
    yield made
    made.close()


def check(rounds: Rounds, rows: int = 3, tokens: int = 4, top_k: int = 2) -> None:
    ids = torch.zeros(rows, top_k, dtype=torch.int32)
    rounds.check_dispatch(ids, [torch.zeros(rows, 16)], tokens)


def test_a_round_is_a_dispatch_and_its_combine(rounds: Rounds) -> None:
    for tokens in (4, 8):
        check(rounds, tokens=tokens)
        rounds.open(tokens)
        rounds.check_open("combine", tokens)
        rounds.close()


def test_a_second_dispatch_is_refused(rounds: Rounds) -> None:
    rounds.open(4)
    with pytest.raises(RoundError, match="dispatch called twice"):
        check(rounds)


@pytest.mark.parametrize("handler", [RuntimeError, AssertionError])
def test_engines_handlers_catch_it(rounds: Rounds, handler: type[Exception]) -> None:
    with pytest.raises(handler):
        rounds.check_open("combine")


def test_instances_on_one_workspace_take_turns(rounds: Rounds) -> None:
    other = Rounds(capacity=8, top_k=2, workspace="a")
    elsewhere = Rounds(capacity=8, top_k=2, workspace="b")
    rounds.open(4)
    check(elsewhere)
    with pytest.raises(RoundError, match="shares this workspace"):
        check(other)
    with pytest.raises(RoundError, match="combine called before dispatch"):
        other.check_open("combine")
    with pytest.raises(RoundError, match="between dispatch and combine"):
        other.check_no_round("checkpoint_prepare")
    other.destroy()  # leaves the round of another instance alone
    with pytest.raises(RoundError, match="dispatch called twice"):
        check(rounds)
    rounds.close()


def test_a_destroyed_owner_frees_the_workspace_and_is_of_no_more_use(rounds: Rounds) -> None:
    other = Rounds(capacity=8, top_k=2, workspace="a")
    rounds.open(4)
    rounds.destroy()
    check(other)
    for call in (lambda: check(rounds), lambda: rounds.check_open("combine")):
        with pytest.raises(RoundError, match="destroyed"):
            call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 5}, "5 local tokens are more than runtime_max_tokens_per_rank=4"),
        ({"tokens": 0}, "must be in"),
        ({"tokens": 9}, "must be in"),
        ({"top_k": 3}, r"must be \[local_num_tokens, 2\]"),
    ],
)
def test_what_does_not_fit_is_refused(rounds: Rounds, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check(rounds, **arguments)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (torch.zeros(2, 16), r"must be \[3, \*\]"),
        (torch.zeros(3), r"must be \[3, \*\]"),
        (torch.zeros(16, 3).T, "contiguous"),
    ],
)
def test_payloads_have_a_row_for_each_token(rounds: Rounds, payload: torch.Tensor, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        rounds.check_dispatch(torch.zeros(3, 2, dtype=torch.int32), [payload], 4)


def test_an_empty_rank_takes_part(rounds: Rounds) -> None:
    check(rounds, rows=0)


def test_a_combine_is_for_its_rounds_size(rounds: Rounds) -> None:
    rounds.open(4)
    with pytest.raises(InvalidArgument, match="runtime_max_tokens_per_rank=8, but its round was dispatched for 4"):
        rounds.check_open("combine", 8)


def test_no_kernel_is_loaded_into_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moe_alltoall, "_ONE_KERNEL", {})
    monkeypatch.setattr(moe_alltoall, "is_capturing", lambda: True)
    assert moe_alltoall._one_kernel(2, 0) is None
    assert moe_alltoall._ONE_KERNEL == {}, "the next call outside a capture loads it"


def test_a_token_without_an_expert_stays_on_its_rank() -> None:
    """Also where the experts cannot be shared out evenly: the first of seven ranks has one more of fifteen."""
    ids = torch.tensor([[-1, 99], [99, 6], [-(2**31), 2**31 - 1]], dtype=torch.int32)
    for rank, first in enumerate((0, 3, 5, 7, 9, 11, 13)):
        instance = SimpleNamespace(num_experts=15, ep_size=7, ep_rank=rank)
        assert moe_alltoall.routable(instance, ids).tolist() == [[first, first], [6, 6], [first, first]]

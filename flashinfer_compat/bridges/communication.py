"""moe_ep's communication objects: what the facade checks around their calls, and what older ones lack."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidArgument, RoundError
from . import expert_parallel
from .expert_parallel import Rounds
from .one_sided import NVLinkOneSidedAlltoAll


def rounds_of(self: Any) -> Rounds:
    """The rounds of a communication object; its constructor may be FlashInfer's, so they begin with the first call."""
    rounds: Rounds | None = self.__dict__.get("_rounds")
    if rounds is None:
        workspace = _workspace(self)
        rounds = Rounds(
            capacity=self.params.max_tokens_per_rank, top_k=self.params.top_k, workspace=("moe_ep", workspace)
        )
        rounds.destroyed = workspace is None
        self.__dict__["_rounds"] = rounds
    return rounds


def _workspace(self: Any) -> Any:
    """What stands for the workspace: instances that share it have the same. None once it is gone."""
    if hasattr(self, "workspace"):  # one-sided from 0.7.3 on
        return None if self.workspace is None else self.workspace.data_ptr()
    if hasattr(self, "_alltoall"):  # the older one, and Cake: over comm.MoeAlltoAll
        return None if self._alltoall is None else self._alltoall.workspace.data_ptr()
    # The two-sided one has one workspace for each geometry and process, in every release.
    return (type(self).__name__, self.ep_rank, self.ep_size)


def check_one_sided_dispatch(
    self: Any,
    hidden_states: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None,
    hidden_states_scale: torch.Tensor | None,
    runtime_max_tokens_per_rank: int | None,
    eplb_local_stats: torch.Tensor | None,
    active_rank_mask: torch.Tensor | None,
) -> None:
    _check_mapped(self)
    check_dispatch(self, hidden_states, topk_ids, topk_weights, hidden_states_scale, runtime_max_tokens_per_rank)
    expert_parallel.check_mask(self.config.enable_rank_mask, active_rank_mask, self.ep_rank)
    expert_parallel.check_statistics(self.config.eplb_stats_num_experts, eplb_local_stats)


def _check_mapped(self: Any) -> None:
    """Refuse what would fault on the device: FlashInfer's own class from 0.7.3 on does not look, the older one does."""
    state = self.__dict__.get("_state")
    memory = state.get("mnnvl_mem") if isinstance(state, dict) else None
    if memory is not None and not memory.mapped:
        raise RoundError("the workspace is unmapped: checkpoint_restore comes first")


def check_checkpoint(self: Any) -> None:
    rounds_of(self).check_no_round("checkpoint_prepare")


def check_dispatch(
    self: Any,
    hidden_states: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None,
    hidden_states_scale: torch.Tensor | None,
    runtime_max_tokens_per_rank: int | None,
) -> None:
    payloads = [hidden_states]
    payloads += [each for each in (hidden_states_scale, topk_weights) if each is not None]
    rounds_of(self).check_dispatch(topk_ids, payloads, _tokens(self, runtime_max_tokens_per_rank))


def dispatched(self: Any, runtime_max_tokens_per_rank: int | None) -> None:
    rounds_of(self).open(_tokens(self, runtime_max_tokens_per_rank))


def _tokens(self: Any, runtime_max_tokens_per_rank: int | None) -> int:
    if runtime_max_tokens_per_rank is not None:
        return runtime_max_tokens_per_rank
    tokens: int = self.params.max_tokens_per_rank
    return tokens


def check_buffer(self: Any) -> None:
    rounds_of(self).check_open("get_combine_input_buffer")


def check_one_sided_combine(self: Any, expert_output: torch.Tensor, active_rank_mask: torch.Tensor | None) -> None:
    check_combine(self, expert_output)
    expert_parallel.check_mask(self.config.enable_rank_mask, active_rank_mask, self.ep_rank)


def check_combine(self: Any, expert_output: torch.Tensor) -> None:
    rounds = rounds_of(self)
    rounds.check_open("combine")
    ranks, tokens = self.ep_size, rounds.tokens
    shape = expert_output.shape
    if shape[0] != ranks * tokens if len(shape) == 2 else len(shape) != 3 or shape[0] != ranks or shape[1] != tokens:
        raise InvalidArgument(
            f"expert_output must be [{ranks * tokens}, hidden] or [{ranks}, {tokens}, hidden], got {tuple(shape)}"
        )


def combined(self: Any) -> None:
    rounds_of(self).close()


def check_destroy(self: Any) -> None:
    """Not a check that refuses: FlashInfer forgets the workspace next, by which its rounds are known."""
    rounds_of(self).destroy()
    inner = self.__dict__.get("_alltoall")
    if inner is not None and "_rounds" in vars(inner):
        inner._rounds.close()


def over_the_facades_alltoall(self: Any) -> None:
    """Give an older communication object the facade's comm.MoeAlltoAll: it routes and pins as the contract says."""
    from ..namespace import facade_object

    inner = self.__dict__.get("_alltoall")
    if inner is not None:
        params = self.params
        inner.__class__ = facade_object("comm.trtllm_moe_alltoall.MoeAlltoAll")
        combine = params.hidden_size * max(params.token_dtype.itemsize, 2)
        inner._combine_bytes = self.ep_size * params.max_tokens_per_rank * combine


class _Newest:
    """Methods and attributes that not every release's communication classes have."""

    params: Any

    def is_workload_feasible(self, max_tokens_per_rank: int) -> bool:
        """Whether a round of this many tokens a rank fits; FlashInfer has it up to 0.7.2.post1."""
        return bool(max_tokens_per_rank <= self.params.max_tokens_per_rank)


class _NewestOneSided(_Newest):
    """What 0.7.2 and 0.7.2.post1 lack besides, as 0.7.1 has it here: over the object's comm.MoeAlltoAll."""

    active_rank_mask = NVLinkOneSidedAlltoAll.active_rank_mask
    checkpoint_prepare = NVLinkOneSidedAlltoAll.checkpoint_prepare
    checkpoint_restore = NVLinkOneSidedAlltoAll.checkpoint_restore
    lamport_enabled = NVLinkOneSidedAlltoAll.lamport_enabled
    lamport_max_tokens = NVLinkOneSidedAlltoAll.lamport_max_tokens


def lacking(native: type, newest: type = _Newest) -> type | None:
    """A mixin of those methods of `newest` that `native` lacks."""
    missing = {
        name: getattr(newest, name) for name in dir(newest) if not (name.startswith("_") or hasattr(native, name))
    }
    # Below `native`, so that an object of FlashInfer's can become one of the class with it.
    return type(native)("_Newest", (native,), missing) if missing else None


def lacking_one_sided(native: type) -> type | None:
    return lacking(native, _NewestOneSided)

"""moe_ep's communication classes, with the newest spelling and the rules of rounds on every release that has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from ..errors import InvalidArgument
from .expert_parallel import Rounds, round_size

#: Backends whose classes the facade extends; others are FlashInfer's own.
EXTENDED = {
    "nvlink_one_sided": "NVLinkOneSidedAlltoAll",
    "nvlink_two_sided": "NVLinkTwoSidedAlltoAll",
    "cake": "CakeAlltoAll",
}


class _Communication:
    """What the one-sided and the two-sided classes have in common; FlashInfer's own comes next in line."""

    params: Any
    ep_rank: int
    ep_size: int
    _step: str
    _rounds: Rounds

    def _round_workspace(self) -> Any:
        raise NotImplementedError

    def __init__(self, bootstrap: Any, params: Any, config: Any = None) -> None:
        super().__init__(bootstrap, params, config)  # type: ignore[call-arg]
        self._rounds = Rounds(
            capacity=params.max_tokens_per_rank, top_k=params.top_k, workspace=self._round_workspace()
        )

    def is_workload_feasible(self, max_tokens_per_rank: int) -> bool:
        """Whether a round of this many tokens a rank fits; a method of FlashInfer's up to 0.7.2.post1."""
        return bool(max_tokens_per_rank <= self.params.max_tokens_per_rank)

    def _dispatched(
        self,
        hidden_states: torch.Tensor,
        topk_ids: torch.Tensor,
        topk_weights: torch.Tensor | None,
        hidden_states_scale: torch.Tensor | None,
        tokens: int,
        options: dict[str, Any],
    ) -> Any:
        payloads = [hidden_states]
        payloads += [each for each in (hidden_states_scale, topk_weights) if each is not None]
        self._rounds.check_dispatch(topk_ids, payloads, tokens)
        options[self._step] = tokens
        result = super().dispatch(  # type: ignore[misc]
            hidden_states, topk_ids, topk_weights, hidden_states_scale=hidden_states_scale, **options
        )
        self._rounds.open(tokens)
        return result

    def get_combine_input_buffer(self, dtype: torch.dtype) -> Any:
        self._rounds.check_open("get_combine_input_buffer")
        return super().get_combine_input_buffer(dtype)  # type: ignore[misc]

    def _check_combine(self, expert_output: torch.Tensor) -> None:
        self._rounds.check_open("combine")
        rows = (self.ep_size, self._rounds.tokens)
        if expert_output.dim() not in (2, 3) or expert_output.shape[:-1] not in ((rows[0] * rows[1],), rows):
            raise InvalidArgument(
                f"expert_output must be [{rows[0] * rows[1]}, hidden] or [{rows[0]}, {rows[1]}, hidden], "
                f"got {tuple(expert_output.shape)}"
            )

    def destroy(self) -> None:
        self._rounds.destroy()
        super().destroy()  # type: ignore[misc]


class _OneSided(_Communication):
    config: Any
    alltoall: Any
    workspace: torch.Tensor

    def _round_workspace(self) -> Any:
        holder = self if hasattr(self, "workspace") else self.alltoall
        return holder.workspace.data_ptr()

    def dispatch(
        self,
        hidden_states: torch.Tensor,
        topk_ids: torch.Tensor,
        topk_weights: torch.Tensor | None = None,
        *,
        hidden_states_scale: torch.Tensor | None = None,
        runtime_max_tokens_per_rank: int | None = None,
        eplb_local_stats: torch.Tensor | None = None,
        active_rank_mask: torch.Tensor | None = None,
        max_tokens_per_rank: int | None = None,
    ) -> Any:
        """Send each token to the ranks of its experts.

        `hidden_states` is ``[local_num_tokens, *]``, `topk_ids` and `topk_weights` ``[local_num_tokens, top_k]``.
        Every rank passes the same `runtime_max_tokens_per_rank`, and `topk_weights` on all ranks or on none; neither
        can be checked here. `RoundError` out of turn, `InvalidArgument` for sizes; nothing is launched then.
        """
        tokens = round_size(self.params.max_tokens_per_rank, runtime_max_tokens_per_rank, max_tokens_per_rank)
        self._check_mask(active_rank_mask)
        options = {"eplb_local_stats": eplb_local_stats, "active_rank_mask": active_rank_mask}
        return self._dispatched(hidden_states, topk_ids, topk_weights, hidden_states_scale, tokens, options)

    def combine(
        self,
        expert_output: torch.Tensor,
        *,
        output: torch.Tensor | None = None,
        active_rank_mask: torch.Tensor | None = None,
    ) -> Any:
        """Each token's expert outputs, summed over ranks: ``[local_num_tokens, hidden]``."""
        self._check_combine(expert_output)
        self._check_mask(active_rank_mask)
        combined = super().combine(  # type: ignore[misc]
            expert_output, output=output, active_rank_mask=active_rank_mask
        )
        self._rounds.close()
        return combined

    def _check_mask(self, mask: torch.Tensor | None) -> None:
        if mask is not None and not self.config.enable_rank_mask:
            raise InvalidArgument("active_rank_mask requires enable_rank_mask=True")


class _TwoSided(_Communication):
    def _round_workspace(self) -> Any:
        # One workspace for each geometry and process in every release.
        return ("two-sided", self.ep_rank, self.ep_size)

    def dispatch(
        self,
        hidden_states: torch.Tensor,
        topk_ids: torch.Tensor,
        topk_weights: torch.Tensor | None = None,
        *,
        hidden_states_scale: torch.Tensor | None = None,
        runtime_max_tokens_per_rank: int | None = None,
        eplb_local_stats: torch.Tensor | None = None,
        max_tokens_per_rank: int | None = None,
    ) -> Any:
        """As `NVLinkOneSidedAlltoAll.dispatch`, without rank masks."""
        tokens = round_size(self.params.max_tokens_per_rank, runtime_max_tokens_per_rank, max_tokens_per_rank)
        options = {"eplb_local_stats": eplb_local_stats}
        return self._dispatched(hidden_states, topk_ids, topk_weights, hidden_states_scale, tokens, options)

    def combine(self, expert_output: torch.Tensor, *, output: torch.Tensor | None = None) -> Any:
        """Each token's expert outputs, summed over ranks: ``[local_num_tokens, hidden]``."""
        self._check_combine(expert_output)
        combined = super().combine(expert_output, output=output)  # type: ignore[misc]
        self._rounds.close()
        return combined


def one_sided(native: type) -> type:
    return _named(_OneSided, native)


def two_sided(native: type) -> type:
    return _named(_TwoSided, native)


def _named(mixin: type, native: Any) -> type:
    """`mixin`, told how the installed release spells a round's size."""
    newest = "runtime_max_tokens_per_rank" in inspect.signature(native.dispatch).parameters
    step = "runtime_max_tokens_per_rank" if newest else "max_tokens_per_rank"
    return type(mixin.__name__, (mixin,), {"_step": step})


def creating() -> Callable[..., Any]:
    """moe_ep.create_communication, making the facade's classes."""
    from flashinfer import moe_ep

    from ..namespace import facade_object

    def create_communication(bootstrap: Any, params: Any, backend: Any, **options: Any) -> Any:
        """A communication of `backend`, a registered name or a configuration object; `KeyError` for an unknown one."""
        name = getattr(backend, "backend_name", backend)
        if not isinstance(name, str) or name not in EXTENDED:
            return moe_ep.create_communication(bootstrap, params, backend, **options)
        if not isinstance(backend, str):
            options["config"] = backend
        return facade_object(f"moe_ep.{EXTENDED[name]}")(bootstrap, params, **options)

    return create_communication

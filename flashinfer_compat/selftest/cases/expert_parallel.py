"""Dispatch to experts and combine, one rank by itself: routing, layouts and sums, and no waiting for a peer."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from .. import nvlink
from ..case import Case, Operation, Outputs, Workload
from ..draw import Draw
from ..library import REFERENCE, Library

_EXPERTS, _TOP_K, _TOKENS, _HIDDEN = 16, 4, 64, 2048
#: A layer's forward, given hidden states, expert ids and weights.
Step = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Layer(Workload):
    """Experts that scale a row; `made_by` gives the forward over an API of `library` from what the experts do."""

    made_by: Callable[[Library, Step], Step]

    def prepare(self, draw: Draw, library: Library) -> Operation:
        inputs, scales = self._inputs(draw)

        def experts(hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            return _weighted_sum(hidden.float(), ids, weights, scales).bfloat16()

        if library is not REFERENCE:
            _join_alone()
        with nvlink.taken_to_be_up() if draw.device.type == "cuda" else nullcontext():
            step = self.made_by(library, experts)
        return Operation(lambda: (step(*inputs),))

    def expected(self, draw: Draw) -> Outputs:
        """What the layer gives without any dispatch."""
        (hidden, ids, weights), scales = self._inputs(draw)
        return (_weighted_sum(hidden.double(), ids, weights, scales),)

    @staticmethod
    def _inputs(draw: Draw) -> tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
        hidden = draw.normal(_TOKENS, _HIDDEN, dtype=torch.bfloat16)
        ids = draw.uniform(_TOKENS, _EXPERTS).argsort(1)[:, :_TOP_K].int().contiguous()
        return (hidden, ids, draw.uniform(_TOKENS, _TOP_K)), 0.5 + draw.uniform(_EXPERTS, _HIDDEN)


def _weighted_sum(hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Of the rows `hidden` (tokens, hidden), of their dtype; an id out of range has no part in it."""
    total = torch.zeros_like(hidden)
    for chosen, weight in zip(ids.unbind(1), weights.unbind(1), strict=True):
        known = (chosen >= 0) & (chosen < _EXPERTS)
        total += torch.where(known, weight, 0.0)[:, None] * hidden * scales[chosen.clamp(0, _EXPERTS - 1).long()]
    return total


def _by_communication(library: Library, experts: Step) -> Step:
    api = library.expert_parallel if library is REFERENCE else library.moe_ep
    communication = api.create_communication(
        api.BootstrapConfig(world_size=1, rank=0),
        api.MoEEpCommParams(num_experts=_EXPERTS, top_k=_TOP_K, max_tokens_per_rank=_TOKENS, hidden_size=_HIDDEN),
        api.NVLinkOneSidedConfig(),
    )

    def step(hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        received = communication.dispatch(hidden, ids, weights, runtime_max_tokens_per_rank=_TOKENS)
        buffer = communication.get_combine_input_buffer(torch.bfloat16)
        buffer.copy_(experts(received.hidden_states, received.topk_ids, received.topk_weights))
        combined: torch.Tensor = communication.combine(buffer)
        return combined

    return step


def _by_alltoall(library: Library, experts: Step) -> Step:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # gone from FlashInfer 0.7.3
        comm = library.comm
        alltoall = comm.MoeAlltoAll(
            comm.Mapping(world_size=1, rank=0, gpus_per_node=1, tp_size=1, moe_ep_size=1),
            max_num_tokens=_TOKENS,
            top_k=_TOP_K,
            num_experts=_EXPERTS,
            workspace_size_per_rank=comm.moe_a2a_get_workspace_size_per_rank(
                1, _TOKENS, 2 * _HIDDEN + 8 * _TOP_K, 2 * _HIDDEN
            ),
            mnnvl_config=comm.mnnvl.MnnvlConfig(comm_backend=comm.mnnvl.TorchDistBackend()),
        )

    def step(hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        received = alltoall.dispatch(
            ids, [hidden, ids, weights], _TOKENS, invalid_token_expert_id=-1, expert_id_payload_index=1
        )
        buffer = alltoall.get_combine_payload_tensor_in_workspace(_TOKENS, _HIDDEN, torch.bfloat16)
        buffer.copy_(experts(*(each.flatten(0, 1) for each in received)).view(buffer.shape))
        combined: torch.Tensor = alltoall.combine(buffer, _TOKENS, payload_in_workspace=True)
        return combined

    return step


@cache
def _join_alone() -> None:
    """A process group of this process alone, which the kernels' workspace is exchanged in; for the process' life."""
    if not torch.distributed.is_initialized():
        store = Path(tempfile.mkdtemp(prefix="selftest-")) / "store"
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)


def _case(name: str, feature: str, made_by: Callable[[Library, Step], Step], **options: Any) -> Case:
    return Case(name=name, features=(feature,), dtype=torch.bfloat16, workload=Layer(made_by), **options)


CASES = (
    _case("expert parallelism, one rank", "moe_ep.communication", _by_communication),
    _case("MoeAlltoAll, one rank", "comm.moe_all_to_all", _by_alltoall, quick=False),
)

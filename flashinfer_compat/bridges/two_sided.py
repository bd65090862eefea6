"""comm.trtllm_alltoall.MnnvlMoe where FlashInfer has only moe_ep's two-sided class: over the same kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ..errors import InvalidArgument, UnsupportedArgument
from .expert_parallel import native_module

_INSTEAD = "Use moe_ep.create_communication with NVLinkTwoSidedConfig."


@dataclass
class MoEAlltoallInfo:
    """Where the rows of a round come from and go to; int32."""

    local_gather_indices: torch.Tensor | None
    send_rank_count_cumsum: torch.Tensor
    send_rank_local_indices: torch.Tensor
    recv_rank_count_cumsum: torch.Tensor
    recv_rank_local_indices: torch.Tensor
    backward_recv_rank_local_indices: torch.Tensor
    local_token_allocation_count: int


def _kernels() -> Any:
    return native_module("nvlink_two_sided.kernels", "comm.trtllm_alltoall.MnnvlMoe", _INSTEAD)


def set_moe_max_usable_sm_count(max_sm_count: int) -> None:
    """Cap the SMs of the exchange, before the first workspace is asked for."""
    _kernels().set_max_usable_sm_count(max_sm_count)


def get_moe_commworkspace_size_per_rank(ep_size: int) -> int:
    return int(_kernels().comm_workspace_size_per_rank(ep_size))


def get_moe_prepare_workspace_size_per_rank(ep_size: int) -> int:
    return int(_kernels().prepare_workspace_size_per_rank(ep_size))


class MnnvlMoe:
    """The exchange of rows between ranks in two steps: prepare, which trades the routing, and alltoallv."""

    moe_workspace: ClassVar[Any] = None
    moe_prepare_workspace: ClassVar[Any] = None
    moe_workspace_tensor: ClassVar[torch.Tensor | None] = None
    moe_prepare_workspace_tensor: ClassVar[torch.Tensor | None] = None
    moe_mapping: ClassVar[Any] = None

    @staticmethod
    def get_moe_workspaces(mapping: Any, config: Any = None) -> torch.Tensor:
        """The process's workspace of `mnnvl_moe_alltoallv`, ``[ep_size, words]`` uint64, for one mapping."""
        if MnnvlMoe.moe_workspace_tensor is None:
            size = get_moe_commworkspace_size_per_rank(mapping.tp_size)
            MnnvlMoe.moe_workspace, MnnvlMoe.moe_workspace_tensor = _allocated(mapping, size, config)
        _check_mapping(mapping)
        return MnnvlMoe.moe_workspace_tensor

    @staticmethod
    def get_moe_prepare_workspace(mapping: Any, config: Any = None) -> torch.Tensor:
        """The process's workspace of the prepare step, ``[ep_size, words]`` uint64, for one mapping."""
        if MnnvlMoe.moe_prepare_workspace_tensor is None:
            size = get_moe_prepare_workspace_size_per_rank(mapping.tp_size)
            memory, tensor = _allocated(mapping, size, config)
            MnnvlMoe.moe_prepare_workspace, MnnvlMoe.moe_prepare_workspace_tensor = memory, tensor
        _check_mapping(mapping)
        return MnnvlMoe.moe_prepare_workspace_tensor

    @staticmethod
    def compute_target_rank_id(token_selected_experts: torch.Tensor, expert_count: int, ep_size: int) -> torch.Tensor:
        """The rank of each expert id."""
        if expert_count % ep_size:
            raise InvalidArgument(f"{expert_count} experts cannot be shared out evenly to {ep_size} ranks")
        return token_selected_experts // (expert_count // ep_size)

    @staticmethod
    def mnnvl_moe_alltoallv_prepare_without_allgather(
        expert_ids: torch.Tensor,
        scales: torch.Tensor | None,
        expert_statics: torch.Tensor | None,
        workspace: torch.Tensor,
        max_token_count_per_rank: int,
        ep_rank: int,
        ep_size: int,
        expert_count: int,
        slot_count: int,
        top_k: int,
    ) -> tuple[MoEAlltoallInfo, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Trade the routing: what drives the round, and the received expert ids, scales (float32) and statistics."""
        if expert_count % 4 or slot_count % 4:
            raise InvalidArgument(f"expert_count={expert_count} and slot_count={slot_count} must be multiples of 4")
        if expert_ids.shape[0] > max_token_count_per_rank:
            raise InvalidArgument(f"{expert_ids.shape[0]} tokens are more than {max_token_count_per_rank}")
        if scales is not None and scales.dtype is not torch.float32:
            raise InvalidArgument(f"scales must be float32, got {scales.dtype}")
        ids, received, send_sums, send, receive_sums, receive, backward, statistics = _kernels().prepare(
            expert_ids,
            scales,
            expert_statics,
            workspace,
            max_token_count_per_rank,
            ep_rank,
            ep_size,
            expert_count,
            slot_count,
            top_k,
        )
        rows = max_token_count_per_rank * ep_size
        info = MoEAlltoallInfo(None, send_sums, send, receive_sums, receive, backward, rows)
        return info, ids, received, statistics

    @staticmethod
    def mnnvl_moe_alltoallv_prepare(
        gathered_target_rank_ids: torch.Tensor,
        real_rank_token_count_cumsum: torch.Tensor | None,
        gathered_expert_ids: torch.Tensor,
        gathered_scales: torch.Tensor,
        max_token_count_per_rank: int,
        expert_count: int,
        top_k: int,
        ep_rank: int,
        ep_size: int,
    ) -> tuple[MoEAlltoallInfo, torch.Tensor, torch.Tensor]:
        """Not on this release: its kernels take the ids of this rank alone."""
        raise UnsupportedArgument(
            "comm.trtllm_alltoall.MnnvlMoe.mnnvl_moe_alltoallv_prepare, of gathered ids: FlashInfer 0.7.1 to "
            "0.7.2.post1 have it. Use mnnvl_moe_alltoallv_prepare_without_allgather."
        )

    @staticmethod
    def mnnvl_moe_alltoallv(
        x: torch.Tensor, alltoall_info: MoEAlltoallInfo, workspace: torch.Tensor, ep_rank: int, ep_size: int
    ) -> torch.Tensor:
        """The rows of `x`, ``[local_num_tokens, *]``, where their experts are: ``[ep_size * capacity, *]``."""
        _check_rows(x)
        output = x.new_empty(alltoall_info.local_token_allocation_count, x.shape[1])
        _kernels().alltoallv(
            x,
            alltoall_info.send_rank_count_cumsum,
            alltoall_info.send_rank_local_indices,
            output,
            alltoall_info.recv_rank_count_cumsum,
            alltoall_info.recv_rank_local_indices,
            workspace,
            ep_rank,
            ep_size,
        )
        return output

    @staticmethod
    def mnnvl_moe_alltoallv_combine(
        x: torch.Tensor,
        alltoall_info: MoEAlltoallInfo,
        workspace: torch.Tensor,
        ep_rank: int,
        ep_size: int,
        top_k: int,
        token_count: int,
    ) -> torch.Tensor:
        """The experts' rows back where their tokens came from, summed: ``[token_count, *]``."""
        _check_rows(x)
        output = x.new_zeros(token_count * top_k, x.shape[1])
        _kernels().alltoallv(
            x,
            alltoall_info.recv_rank_count_cumsum,
            alltoall_info.recv_rank_local_indices,
            output,
            alltoall_info.send_rank_count_cumsum,
            alltoall_info.backward_recv_rank_local_indices,
            workspace,
            ep_rank,
            ep_size,
        )
        return output.view(token_count, top_k, x.shape[1]).sum(1)


def _allocated(mapping: Any, size: int, config: Any) -> tuple[Any, torch.Tensor]:
    from flashinfer.comm.mnnvl import MnnvlMemory

    if MnnvlMoe.moe_mapping is not None:
        _check_mapping(mapping)
    if config:
        MnnvlMemory.set_comm_from_config(mapping, config)
    memory = MnnvlMemory(mapping, size)
    MnnvlMoe.moe_mapping = mapping
    return memory, memory.as_torch_strided_tensor(torch.uint64)


def _check_mapping(mapping: Any) -> None:
    if mapping != MnnvlMoe.moe_mapping:
        raise InvalidArgument("MnnvlMoe serves one mapping in a process, and this is another")


def _check_rows(x: torch.Tensor) -> None:
    if x.dim() != 2 or x.shape[1] * x.element_size() % 16:
        raise InvalidArgument(f"rows must be [*, n] of a multiple of 16 bytes, got {tuple(x.shape)} of {x.dtype}")

"""`moe_ep`'s communication, and `comm.MoeAlltoAll`, in plain PyTorch: over torch.distributed, or one process alone.

The arguments, results and errors are those of the facade on FlashInfer 0.7.4: the classes are the facade's own, by the
same rules, with tensor operations and messages between processes in place of the kernels. Any backend of
torch.distributed will do (gloo needs no GPU); without a process group there is one rank.

Rows arrive in the order in which their rank sent them, so that a run can be repeated; the kernels' order is not fixed.
The sum of combine is in float32, from the first rank to the last, rounded once. Buffers are on PyTorch's default device
at construction. How long a rank waits for another is the process group's to say; nothing here can be captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.distributed

from ..adapters.v0_7_4 import ADAPTER
from ..bridges import expert_parallel, moe_alltoall, one_sided
from ..bridges.moe_alltoall import WorkspaceSize
from ..bridges.one_sided import MoEEpCommParams, MoEEpDispatchResult
from ..errors import InvalidArgument
from .checks import refuse

__all__ = [
    "BootstrapConfig",
    "MnnvlConfig",
    "MoEEpCommParams",
    "MoEEpDispatchResult",
    "MoeAlltoAll",
    "NVLinkOneSidedAlltoAll",
    "NVLinkOneSidedConfig",
    "TorchDistBackend",
    "create_communication",
    "moe_a2a_active_rank_mask",
    "moe_a2a_get_workspace_size_per_rank",
]
_LARGEST_FP8 = 448.0


@dataclass(frozen=True)
class BootstrapConfig:
    """The rank, among how many, and their process group; of the rest, which is for kernels, nothing is read.

    Anything with these attributes will do, FlashInfer's own for one.
    """

    world_size: int
    rank: int
    stream: int = 0
    auto_bootstrap: bool = True
    nccl_comm: int | None = None
    process_group: Any = field(default=None, compare=False)
    tcp_store: Any = None
    device: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise InvalidArgument(f"rank {self.rank} is not among the {self.world_size} of world_size")


@dataclass
class NVLinkOneSidedConfig(one_sided.NVLinkOneSidedConfig):
    """Options of `NVLinkOneSidedAlltoAll`; the kernels' other ways, `cft` and `lamport`, are refused."""

    cft: bool | None = None
    cft_max_tokens_for_dispatch: int = 128
    cft_max_tokens_for_combine: int = 128
    lamport: bool | None = None
    lamport_max_tokens: int | None = None
    timeout_sec: int = 300
    enable_pdl: bool | None = None

    def __post_init__(self) -> None:
        refuse("NVLinkOneSidedConfig", cft=self.cft, lamport=self.lamport)


class TorchDistBackend:
    """The ranks of a process group, of the default one if None; without any, this process alone."""

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self._alone = group is None and not (torch.distributed.is_available() and torch.distributed.is_initialized())

    def Get_size(self) -> int:
        return 1 if self._alone else torch.distributed.get_world_size(self._group)

    def Get_rank(self) -> int:
        return 0 if self._alone else torch.distributed.get_rank(self._group)

    def allgather(self, value: Any) -> list[Any]:
        values = [value] * self.Get_size()
        if not self._alone:
            torch.distributed.all_gather_object(values, value, self._group)
        return values

    def exchange(self, outgoing: torch.Tensor, active: Sequence[int]) -> torch.Tensor:
        """``outgoing[rank]`` to each active rank, and what came from each in its place; zeros from the others.

        From rank to rank, since a rank that is not active takes part in nothing.
        """
        own = self.Get_rank()
        incoming = torch.zeros_like(outgoing)
        incoming[own] = outgoing[own]
        peers = [rank for rank in active if rank != own]
        if not peers:
            return incoming
        # gloo takes neither CUDA tensors nor every type.
        on_host = torch.distributed.get_backend(self._group) == "gloo"
        sent, received = (
            (each.cpu() if on_host else each).reshape(len(each), -1).view(torch.uint8) for each in (outgoing, incoming)
        )
        operations = [
            torch.distributed.P2POp(call, buffer[rank], group=self._group, group_peer=rank)
            for rank in peers
            for call, buffer in ((torch.distributed.isend, sent), (torch.distributed.irecv, received))
        ]
        for work in torch.distributed.batch_isend_irecv(operations):
            work.wait()
        return received.view(outgoing.dtype).view(outgoing.shape).to(outgoing.device)


@dataclass(frozen=True)
class MnnvlConfig:
    """Which ranks a `MoeAlltoAll` is for; without one, those of the default process group."""

    comm_backend: TorchDistBackend | None = None


def _ranks(backend: Any, process_group: Any = None) -> TorchDistBackend:
    backend = TorchDistBackend(process_group) if backend is None else backend
    if not isinstance(backend, TorchDistBackend):
        raise InvalidArgument("comm_backend must be this module's TorchDistBackend: it carries the rows here")
    return backend


class _Memory:
    """What instances of the same sizes share."""

    def __init__(self, size: int) -> None:
        self.bytes = torch.zeros(size, dtype=torch.uint8)
        self.mapped = True


class _Layout:
    """The parts of a workspace, and the kernels' limits."""

    FIELDS = (
        "WORKSPACE_SIZE",
        "DISPATCH_PAYLOAD_SIZE",
        "DISPATCH_PAYLOAD_OFFSET",
        "COMBINE_INPUT_SIZE",
        "COMBINE_INPUT_OFFSET",
        "MAX_NUM_TOKENS",
        "TOP_K",
    )
    MAX_RANKS, MAX_PAYLOADS, WORKSPACE_ALIGNMENT = 256, 4, 128

    mask_words = MAX_RANKS // 64
    supported_top_k = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 22)

    def __init__(self) -> None:
        self.index = self

    def __getattr__(self, name: str) -> int:
        try:
            return self.FIELDS.index(name.removesuffix("_INDEX"))
        except ValueError:
            raise AttributeError(name) from None

    def laid_out(
        self, ep_size: int, tokens: int, top_k: int, dispatch: int, combine: int, experts: int
    ) -> torch.Tensor:
        """Sizes and offsets in `FIELDS`' order: the statistics, what is received, the experts' outputs."""
        statistics, dispatch, combine = (
            -(-size // self.WORKSPACE_ALIGNMENT) * self.WORKSPACE_ALIGNMENT
            for size in (4 * ep_size * experts, dispatch, combine)
        )
        end = statistics + dispatch
        return torch.tensor([end + combine, dispatch, statistics, combine, end, tokens, top_k])


class _MoeAlltoAll(moe_alltoall.MoeAlltoAll):
    """Dispatch of any one to four payloads to the ranks of their experts, and the combine of what comes back."""

    _WORKSPACE_CACHE: ClassVar[dict[tuple[Any, ...], Any]] = {}

    @classmethod
    def _open_kernels(cls) -> _Layout:
        return _Layout()

    def _open_workspace(self, mapping: Any, mnnvl_config: Any) -> tuple[_Memory, torch.Tensor]:
        self._group = _ranks(getattr(mnnvl_config, "comm_backend", None))
        if (self._group.Get_size(), self._group.Get_rank()) != (self.ep_size, self.ep_rank):
            raise InvalidArgument(
                f"the communicator is rank {self._group.Get_rank()} of {self._group.Get_size()}, "
                f"the mapping rank {self.ep_rank} of {self.ep_size}"
            )
        self._key += (torch.empty(0).device,)
        memory = self._WORKSPACE_CACHE.get(self._key)
        if memory is None:
            memory = self._WORKSPACE_CACHE[self._key] = _Memory(int(self.workspace_size_per_rank))
        return memory, memory.bytes.expand(self.ep_size, -1)  # of a peer's slice nothing is read or written

    def _launch_dispatch(
        self,
        ids: torch.Tensor,
        payloads: Sequence[torch.Tensor],
        tokens: int,
        invalid_id: int | None,
        statistics: torch.Tensor | None,
        mask: torch.Tensor | None,
    ) -> tuple[Sequence[int], int, int]:
        active = self._active(mask)
        owners = self._owners(ids)
        wanted = [(owners == rank).any(1) & (rank in active) for rank in range(self.ep_size)]
        #: Of the round: the rows that go to each rank, and how many come from each.
        self._sent = [rows.nonzero().flatten() for rows in wanted]
        counts = torch.tensor([[len(rows)] for rows in self._sent], device=ids.device)
        self._received: list[int] = self._group.exchange(counts, active).flatten().tolist()
        offset = int(self.metainfo[self._kernels.index.DISPATCH_PAYLOAD_OFFSET_INDEX])
        offsets = []
        for payload in payloads:
            row_bytes = payload.shape[1] * payload.element_size()
            outgoing = torch.zeros(self.ep_size, tokens, row_bytes, dtype=torch.uint8, device=payload.device)
            for rank, rows in enumerate(self._sent):
                outgoing[rank, : len(rows)] = payload.view(torch.uint8)[rows]
            placed = self._view(offset, torch.uint8, tokens, row_bytes)
            for rank, rows in enumerate(self._group.exchange(outgoing, active)):
                placed[rank, : self._received[rank]] = rows[: self._received[rank]]
            offsets.append(offset)
            offset += moe_alltoall.aligned(outgoing.nbytes)
        if statistics is not None:
            gathered = self._group.exchange(statistics.expand(self.ep_size, -1).contiguous(), active)
            self._slice[: gathered.nbytes] = gathered.flatten().view(torch.uint8)
        return offsets, int(self.metainfo[self._kernels.index.COMBINE_INPUT_OFFSET_INDEX]), 0

    def _launch_sanitize(self, received_ids: torch.Tensor, invalid_id: int) -> None:
        for rank, count in enumerate(self._received):
            received_ids[rank, count:] = invalid_id

    def _launch_combine(
        self,
        payload: torch.Tensor,
        tokens: int,
        in_workspace: bool,
        low_precision: bool,
        mask: torch.Tensor | None,
        output: torch.Tensor,
    ) -> None:
        if low_precision:
            payload = payload.float().clamp(-_LARGEST_FP8, _LARGEST_FP8).to(torch.float8_e4m3fn).float()
        total = torch.zeros(output.shape, dtype=torch.float32, device=output.device)
        for rows, sent in zip(self._group.exchange(payload, self._active(mask)), self._sent, strict=True):
            total.index_add_(0, sent.to(total.device), rows[: len(sent)].to(total.device, torch.float32))
        output.copy_(total)

    def _active(self, mask: torch.Tensor | None) -> list[int]:
        if mask is None:
            return list(range(self.ep_size))
        return [rank for rank in range(self.ep_size) if expert_parallel.is_marked(mask, rank)]

    def _owners(self, ids: torch.Tensor) -> torch.Tensor:
        """The rank of each expert: shares differ by one at most, the first ranks have the larger. -1 out of range."""
        share, more = divmod(self.num_experts, self.ep_size)
        shares = torch.tensor([share + (rank < more) for rank in range(self.ep_size)], device=ids.device)
        owners = torch.bucketize(ids, shares.cumsum(0), right=True)
        return torch.where((ids >= 0) & (ids < self.num_experts), owners, -1)

    def checkpoint_prepare(self) -> None:
        """Mark the workspace as gone; on every rank, between rounds."""
        self.mnnvl_mem.mapped = False

    def checkpoint_restore(self, comm_backend: Any) -> None:
        """Bring the workspace back, empty; on every rank."""
        if not self.mnnvl_mem.mapped:
            self.mnnvl_mem.bytes.zero_()
            self.mnnvl_mem.mapped = True


class _NVLinkOneSidedAlltoAll(one_sided.NVLinkOneSidedAlltoAll):
    """Each token goes to the ranks of its experts; the sum of what they make of it comes back."""

    supports_cuda_graph: ClassVar[bool] = False

    def _group(self) -> TorchDistBackend:
        return _ranks(self.config.comm_backend, self.bootstrap.process_group)

    def _open_alltoall(self, group: TorchDistBackend, dispatch_bytes: int, combine_bytes: int) -> Any:
        params, experts = self.params, self.config.eplb_stats_num_experts
        return MoeAlltoAll(
            SimpleNamespace(moe_ep_size=self.ep_size, moe_ep_rank=self.ep_rank),
            params.max_tokens_per_rank,
            params.top_k,
            params.num_experts,
            moe_a2a_get_workspace_size_per_rank(
                self.ep_size, params.max_tokens_per_rank, dispatch_bytes, combine_bytes, experts
            ),
            mnnvl_config=MnnvlConfig(group),
            eplb_stats_num_experts=experts,
            enable_rank_mask=self.config.enable_rank_mask,
        )

    @classmethod
    def is_platform_supported(cls) -> bool:
        """Everywhere."""
        return True

    def active_rank_mask(self, active_ranks: Sequence[int]) -> torch.Tensor:
        """A mask of the ranks that take part, for `active_rank_mask=`; on the host."""
        return moe_a2a_active_rank_mask(active_ranks, self.ep_size)


def _by_the_rules(name: str, cls: type) -> Any:
    """`cls` with the lines of the contract's own release about FlashInfer's class `name`."""
    bound = ADAPTER.bind(name, cls, lambda other: None)
    bound.__module__ = __name__
    return bound


MoeAlltoAll = _by_the_rules("comm.trtllm_moe_alltoall.MoeAlltoAll", _MoeAlltoAll)
NVLinkOneSidedAlltoAll = _by_the_rules("moe_ep.NVLinkOneSidedAlltoAll", _NVLinkOneSidedAlltoAll)


def create_communication(bootstrap: Any, params: MoEEpCommParams, backend: Any, **options: Any) -> Any:
    """A communication object; of the backends' names, or configurations, this has ``nvlink_one_sided``."""
    name = getattr(backend, "backend_name", backend)
    if not isinstance(name, str):
        raise TypeError(f"backend must be a name or have a backend_name, got {backend!r}")
    if name != NVLinkOneSidedConfig.backend_name:
        raise KeyError(f"unknown communication backend {name!r}; available: {[NVLinkOneSidedConfig.backend_name]}")
    if not isinstance(backend, str):
        options["config"] = backend
    return NVLinkOneSidedAlltoAll(bootstrap, params, **options)


def moe_a2a_get_workspace_size_per_rank(
    ep_size: int,
    max_num_tokens: int,
    total_dispatch_payload_size_per_token: int,
    combine_payload_size_per_token: int,
    eplb_stats_num_experts: int = 0,
    *,
    backend: str = "trtllm",
) -> WorkspaceSize:
    """Bytes of a rank's workspace here; the kernels need more."""
    return moe_alltoall.workspace_size(
        _Layout(),
        ep_size,
        max_num_tokens,
        total_dispatch_payload_size_per_token,
        combine_payload_size_per_token,
        eplb_stats_num_experts,
    )


def moe_a2a_active_rank_mask(active_ranks: Sequence[int], ep_size: int) -> torch.Tensor:
    """A mask with a bit for each active rank, in four uint64 words; on the host."""
    return moe_alltoall.rank_mask(active_ranks, ep_size, _Layout.mask_words)

"""comm.MoeAlltoAll: its rules on every release, and the class itself where FlashInfer has only moe_ep's.

There it is built over the functions of the compiled module behind moe_ep.NVLinkOneSidedAlltoAll
(csrc/nvlink_one_sided_alltoall.cu), whose payload roles and shared layouts are fixed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from ..errors import FeatureUnavailable, InvalidArgument, RoundError, UnsupportedArgument
from . import expert_parallel
from .expert_parallel import Rounds, native_module
from .planner import is_capturing

#: The functions' parameters by their names in the source of 0.7.4. What an older source lacks of them is left out.
_PARAMETERS = {
    "moeA2AGetWorkspaceLayoutOp": (
        "epSize maxNumTokens topK dispatchBytes combineInputBytes combineRecvBytes eplbStatsNumExperts canUseCft "
        "metainfo"
    ),
    "moeA2AInitializeOp": "workspace metainfo epRank epSize",
    "moeA2ADispatchOp": (
        "tokenSelectedExperts inputPayloads workspace metainfo runtimeMaxTokensPerRank epRank epSize topK numExperts "
        "eplbLocalStats useCftCountedWrites expertIdPayloadIndex invalidTokenExpertId useLamport enableRankMask "
        "activeRankMask timeoutSec enablePdl"
    ),
    "moeA2ASanitizeExpertIdsOp": "expertIds workspace metainfo epRank invalidExpertId enablePdl",
    "moeA2ACombineOp": (
        "payload localNumTokens workspace metainfo runtimeMaxTokensPerRank epRank epSize topK combinePayloadOffset "
        "payloadInWorkspace useLowPrecision useCftCountedWrites enableRankMask activeRankMask output timeoutSec "
        "enablePdl useLamport"
    ),
}
_TIMEOUT_SEC = 300
_COMBINED = (torch.bfloat16, torch.float16, torch.float32)
_INSTEAD = "Use moe_ep.create_communication with NVLinkOneSidedConfig."


class WorkspaceSize(int):
    """Bytes of a rank's workspace, and what of them is for dispatch and for combine.

    Those do not follow from the sum, and the layout from 0.7.3 on needs them. Adding a number keeps them: engines ask
    for a workspace of their own so.
    """

    dispatch_bytes: int
    combine_bytes: int

    def __new__(cls, value: int, dispatch_bytes: int, combine_bytes: int) -> WorkspaceSize:
        size = super().__new__(cls, value)
        size.dispatch_bytes, size.combine_bytes = dispatch_bytes, combine_bytes
        return size

    def __add__(self, other: int) -> WorkspaceSize:
        return WorkspaceSize(int(self) + int(other), self.dispatch_bytes, self.combine_bytes)

    __radd__ = __add__

    def __reduce__(self) -> tuple[type, tuple[int, int, int]]:
        return WorkspaceSize, (int(self), self.dispatch_bytes, self.combine_bytes)


# Rules on every release


def rounds_of(self: Any) -> Rounds:
    rounds: Rounds | None = self.__dict__.get("_rounds")
    if rounds is None:
        rounds = Rounds(capacity=self.max_num_tokens, top_k=self.top_k, workspace=self.workspace.data_ptr())
        self.__dict__["_rounds"] = rounds
    return rounds


def check_dispatch(
    self: Any,
    token_selected_experts: torch.Tensor,
    input_payloads: Sequence[torch.Tensor],
    runtime_max_tokens_per_rank: int,
    invalid_token_expert_id: int | None,
    expert_id_payload_index: int | None,
    eplb_local_stats: torch.Tensor | None,
    active_rank_mask: torch.Tensor | None,
) -> None:
    _check_mapped(self)
    rounds_of(self).check_dispatch(token_selected_experts, input_payloads, runtime_max_tokens_per_rank)
    if token_selected_experts.dtype is not torch.int32:
        raise InvalidArgument(f"expert ids must be int32, got {token_selected_experts.dtype}")
    if not input_payloads:
        raise InvalidArgument("a dispatch has at least one payload")
    if invalid_token_expert_id is not None:
        # Older releases say so after the launch, and are in a round then.
        index = expert_id_payload_index
        if index is None:
            raise InvalidArgument("invalid_token_expert_id requires expert_id_payload_index")
        if not -len(input_payloads) <= index < len(input_payloads) or input_payloads[index].dtype is not torch.int32:
            raise InvalidArgument(f"expert_id_payload_index={index} is no payload of int32 expert ids")
    expert_parallel.check_statistics(self.eplb_stats_num_experts, eplb_local_stats)
    expert_parallel.check_mask(self.enable_rank_mask, active_rank_mask, self.ep_rank)


def dispatched(self: Any, runtime_max_tokens_per_rank: int) -> None:
    rounds_of(self).open(runtime_max_tokens_per_rank)


def check_combine(
    self: Any, payload: torch.Tensor, runtime_max_tokens_per_rank: int, active_rank_mask: torch.Tensor | None
) -> None:
    _check_mapped(self)
    rounds_of(self).check_open("combine", runtime_max_tokens_per_rank)
    if payload.dim() != 3 or payload.shape[:2] != (self.ep_size, runtime_max_tokens_per_rank):
        raise InvalidArgument(
            f"a combine payload must be [{self.ep_size}, {runtime_max_tokens_per_rank}, *], got {tuple(payload.shape)}"
        )
    expert_parallel.check_mask(self.enable_rank_mask, active_rank_mask, self.ep_rank)


def combined(self: Any) -> None:
    rounds_of(self).close()


def check_buffer(self: Any, runtime_max_tokens_per_rank: int) -> None:
    _check_mapped(self)
    rounds_of(self).check_open("get_combine_payload_tensor_in_workspace", runtime_max_tokens_per_rank)


def check_checkpoint(self: Any) -> None:
    rounds_of(self).check_no_round("checkpoint_prepare")


def _check_mapped(self: Any) -> None:
    if not self.mnnvl_mem.mapped:
        raise RoundError("the workspace is unmapped: checkpoint_restore comes first")


# Where the kernels are the older ones (up to 0.7.2.post1)


def routable(self: Any, token_selected_experts: torch.Tensor) -> torch.Tensor:
    """Expert ids to route by: the older kernels make a rank of every id, of one out of range a peer that is not there.

    Such an id becomes one of the token's others, which sends nothing more; a token without any stays on its own rank.
    The payload keeps the ids as they were. Without a look at them on the host: a kernel, or six of PyTorch's.
    """
    experts: int = self.num_experts
    share, more = divmod(experts, self.ep_size)
    home = self.ep_rank * share + min(self.ep_rank, more)  # this rank's first expert
    if token_selected_experts.is_cuda:
        route = _one_kernel(token_selected_experts.shape[1], token_selected_experts.get_device())
        if route is not None:
            return route(token_selected_experts, experts, home)
    valid = token_selected_experts.clamp(0, experts - 1) == token_selected_experts
    # Below any valid id, and `home` modulo the number of experts.
    other = torch.where(valid, token_selected_experts, home - experts)
    if other.shape[1] > 1:
        other = torch.where(valid, other, other.amax(1, keepdim=True))
    return other.remainder_(experts)


_Route = Callable[[torch.Tensor, int, int], torch.Tensor]
_ONE_KERNEL: dict[tuple[int, int], _Route | None] = {}


def _one_kernel(top_k: int, device: int) -> _Route | None:
    """`routing_kernel.route`, compiled for a top_k and loaded on a device; None where that cannot be, or not now."""
    key = top_k, device
    if key not in _ONE_KERNEL:
        if is_capturing():
            return None  # loading a kernel would spoil the capture of a layer that has not run before
        try:
            from .routing_kernel import route

            route(torch.zeros(1, top_k, dtype=torch.int32, device=torch.device("cuda", device)), 1, 0)
            _ONE_KERNEL[key] = route
        except Exception:  # no Triton, or it lacks a compiler or a driver that it knows
            _ONE_KERNEL[key] = None
    return _ONE_KERNEL[key]


def sized(
    result: int, ep_size: int, max_num_tokens: int, total_dispatch_payload_size_per_token: int,
    combine_payload_size_per_token: int,
) -> WorkspaceSize:  # fmt: skip
    """The older function's result, with what of it is for combine."""
    rows = ep_size * max_num_tokens
    return WorkspaceSize(result, rows * total_dispatch_payload_size_per_token, rows * combine_payload_size_per_token)


def keep_combine_bytes(self: Any, workspace_size_per_rank: int | None, hidden_size: int | None) -> None:
    """Remember how large the combine region is, where that is known."""
    if isinstance(workspace_size_per_rank, WorkspaceSize):
        self._combine_bytes = workspace_size_per_rank.combine_bytes
    elif hidden_size is not None:
        self._combine_bytes = self.ep_size * self.max_num_tokens * hidden_size * 2


def pin_combine_region(self: Any) -> None:
    """Put the round's combine region at the end of the workspace, where every round has it.

    The older kernels put it behind the payloads of the round. A rank that is ahead would write a larger round's rows
    over what a slower peer still reads of the last one (csrc/trtllm_moe_alltoall.cu).
    """
    combine = self.__dict__.get("_combine_bytes")
    if combine is not None:
        pinned = (int(self.workspace_size_per_rank) - aligned(combine)) // 128 * 128
        if self._state.combine_payload_offset <= pinned:
            self._state.combine_payload_offset = pinned


def aligned(size: int) -> int:
    return -(-size // 128) * 128


# Where FlashInfer has no such class (from 0.7.3 on)


class _Kernels:
    """The compiled module's functions, in the order that the installed source declares their parameters."""

    def __init__(self) -> None:
        native = _native("nvlink_one_sided.kernels")
        module = native.get_nvlink_one_sided_alltoall_module()
        self.index = native.layout_constants()
        self.layout = _in_order(module.moe_a2a_get_workspace_layout, "moeA2AGetWorkspaceLayoutOp")
        self.initialize = _in_order(module.moe_a2a_initialize, "moeA2AInitializeOp")
        self.dispatch = _in_order(module.moe_a2a_dispatch, "moeA2ADispatchOp")
        self.sanitize = _in_order(module.moe_a2a_sanitize_expert_ids, "moeA2ASanitizeExpertIdsOp")
        self.combine = _in_order(module.moe_a2a_combine, "moeA2ACombineOp")

    def laid_out(self, ep_size: int, tokens: int, top_k: int, dispatch: int, combine: int, experts: int) -> Any:
        """The layout of a rank's workspace: int64 offsets and sizes, on the host."""
        metainfo = torch.empty(self.index.NUM_METAINFO_FIELDS, dtype=torch.int64, device="cpu")
        self.layout(ep_size, tokens, top_k, dispatch, combine, 0, experts, False, metainfo)
        return metainfo

    @property
    def mask_words(self) -> int:
        return int(self.index.MAX_RANKS + 63) // 64

    @property
    def supported_top_k(self) -> tuple[int, ...] | None:
        """What the kernels are compiled for; None where the installed release does not say."""
        return getattr(_native("nvlink_one_sided.communication"), "_SUPPORTED_TOP_K", None)


def _native(module: str) -> Any:
    return native_module(module, "comm.MoeAlltoAll", _INSTEAD)


def _in_order(function: Callable[..., Any], op: str) -> Callable[..., Any]:
    """`function`, taking the parameters of 0.7.4, whatever of them the installed release declares."""
    known = _PARAMETERS[op].split()
    declared = _declared(op) or known
    if declared == known:
        return function
    if unknown := [name for name in declared if name not in known]:
        raise FeatureUnavailable(
            f"flashinfer.comm.MoeAlltoAll: the installed kernels take {', '.join(unknown)}, which the facade does not "
            f"know. {_INSTEAD}"
        )
    made: dict[str, Any] = {"_function": function}
    exec(f"def call({', '.join(known)}): return _function({', '.join(declared)})", made)
    call: Callable[..., Any] = made["call"]
    return call


@functools.cache
def _declared(op: str) -> list[str]:
    """The parameters of a function of the module, from its packaged source."""
    import flashinfer

    source = Path(flashinfer.__path__[0]) / "data" / "csrc" / "nvlink_one_sided_alltoall.cu"
    text = source.read_text() if source.exists() else ""
    found = re.search(rf"\b{op}\(([^)]*)\)\s*{{", text)
    return [part.split()[-1] for part in found[1].split(",")] if found else []


def get_workspace_size_per_rank(
    ep_size: int,
    max_num_tokens: int,
    total_dispatch_payload_size_per_token: int,
    combine_payload_size_per_token: int,
    eplb_stats_num_experts: int = 0,
    *,
    backend: str = "trtllm",
) -> WorkspaceSize:
    """Bytes of a rank's workspace; it may be larger than that of an older release, and takes any top_k."""
    _check_backend(backend)
    return workspace_size(
        _Kernels(),
        ep_size,
        max_num_tokens,
        total_dispatch_payload_size_per_token,
        combine_payload_size_per_token,
        eplb_stats_num_experts,
    )


def workspace_size(
    kernels: Any, ep_size: int, max_num_tokens: int, dispatch_bytes: int, combine_bytes: int, experts: int
) -> WorkspaceSize:
    """As `get_workspace_size_per_rank`, by the layout of `kernels`; the bytes are those of a token."""
    index, rows = kernels.index, ep_size * max_num_tokens
    # Each payload starts on a boundary of its own.
    dispatch = rows * dispatch_bytes + index.MAX_PAYLOADS * index.WORKSPACE_ALIGNMENT
    combine = rows * combine_bytes
    layout = kernels.laid_out(ep_size, max_num_tokens, _most(index), dispatch, combine, experts)
    return WorkspaceSize(int(layout[index.WORKSPACE_SIZE_INDEX]), dispatch, combine)


def _most(index: Any) -> int:
    """The kernels' largest top_k: the older function does not ask for it, only routing tables depend on it."""
    return int(getattr(index, "MAX_TOP_K", 22))


def active_rank_mask(active_ranks: Sequence[int], ep_size: int) -> torch.Tensor:
    """A mask with a bit for each active rank, in as many uint64 words as the kernels take; on the host."""
    return rank_mask(active_ranks, ep_size, _Kernels().mask_words)


def rank_mask(active_ranks: Sequence[int], ep_size: int, words: int) -> torch.Tensor:
    mask = 0
    for rank in active_ranks:
        if not 0 <= int(rank) < ep_size:
            raise InvalidArgument(f"rank {int(rank)} is not in [0, {ep_size})")
        mask |= 1 << int(rank)
    parts = [mask >> 64 * word & (1 << 64) - 1 for word in range(words)]
    return torch.tensor(parts, dtype=torch.uint64, device="cpu")


def wrap_payload_tensor_in_workspace(
    workspace: torch.Tensor, leading_shape: list[int], slice_start: int, slice_end: int, dtype: torch.dtype
) -> torch.Tensor:
    """Bytes `slice_start` to `slice_end` of the workspace, which lie in one rank's slice, as ``[*leading_shape, -1]``.

    `workspace` is ``[ep_size, size_per_rank]`` or a rank's slice.
    """
    ranks = (workspace.unsqueeze(0) if workspace.ndim == 1 else workspace).view(torch.uint8)
    rank, start = divmod(slice_start, ranks.stride(0))
    end = start + slice_end - slice_start
    if ranks.ndim != 2 or end > ranks.shape[1]:
        raise InvalidArgument(f"bytes {slice_start} to {slice_end} do not lie in one rank's slice of the workspace")
    return ranks[rank, start:end].view(dtype).view(*leading_shape, -1)


def _check_backend(backend: str) -> None:
    if backend == "cake":
        raise UnsupportedArgument(
            "comm.MoeAlltoAll(backend='cake'): FlashInfer 0.7.1 to 0.7.2.post1 have it. "
            "Use moe_ep.create_communication with CakeAlltoAllConfig."
        )
    if backend != "trtllm":
        raise InvalidArgument(f"backend={backend!r} is neither 'trtllm' nor 'cake'")


class MoeAlltoAll:
    """Dispatch of any one to four payloads to the ranks of their experts, and the combine of what comes back."""

    _WORKSPACE_CACHE: ClassVar[dict[tuple[Any, ...], tuple[Any, torch.Tensor]]] = {}

    def __init__(
        self,
        mapping: Any,
        max_num_tokens: int,
        top_k: int,
        num_experts: int,
        workspace_size_per_rank: int | None = None,
        hidden_size: int | None = None,
        mnnvl_config: Any = None,
        eplb_stats_num_experts: int = 0,
        enable_rank_mask: bool = False,
        *,
        backend: str = "trtllm",
    ) -> None:
        _check_backend(backend)
        self._kernels = self._open_kernels()
        self.max_num_tokens, self.top_k, self.num_experts = max_num_tokens, top_k, num_experts
        self.ep_size: int = mapping.moe_ep_size
        self.ep_rank: int = mapping.moe_ep_rank
        self.eplb_stats_num_experts = eplb_stats_num_experts
        self.enable_eplb = eplb_stats_num_experts > 0
        self.enable_rank_mask = enable_rank_mask
        self._check_sizes()
        if workspace_size_per_rank is None:
            if hidden_size is None:
                raise InvalidArgument("hidden_size is needed where workspace_size_per_rank is not given")
            workspace_size_per_rank = self.get_moe_workspace_size_per_rank(
                self.ep_size, top_k, max_num_tokens, hidden_size, eplb_stats_num_experts=eplb_stats_num_experts
            )
        self.workspace_size_per_rank = workspace_size_per_rank
        self.metainfo = self._laid_out(workspace_size_per_rank, hidden_size)

        #: Instances of the same sizes share a workspace.
        self._key = (int(workspace_size_per_rank), self.ep_rank, *self.metainfo.tolist())
        self.mnnvl_mem, self.workspace = self._open_workspace(mapping, mnnvl_config)
        self._slice = self.workspace[self.ep_rank]
        self._views: dict[tuple[int, torch.dtype, int, int], torch.Tensor] = {}
        self._enable_pdl: bool | None = None
        self._local_num_tokens = self._combine_offset = 0
        self._gathered: torch.Tensor | None = None

    @classmethod
    def _open_kernels(cls) -> Any:
        return _Kernels()

    def _open_workspace(self, mapping: Any, mnnvl_config: Any) -> tuple[Any, torch.Tensor]:
        """The memory, and every rank's slice of it, ``[ep_size, workspace_size_per_rank]`` bytes."""
        from flashinfer.comm.mnnvl import MnnvlMemory

        MnnvlMemory.initialize()
        if mnnvl_config:
            MnnvlMemory.set_comm_from_config(mapping, mnnvl_config)
        if self._key not in self._WORKSPACE_CACHE:
            memory = MnnvlMemory(mapping, int(self.workspace_size_per_rank))
            workspace = memory.as_torch_strided_tensor(torch.uint8)
            self._kernels.initialize(workspace, self.metainfo, self.ep_rank, self.ep_size)
            # No peer may write here before every rank has cleared its slice.
            MnnvlMemory.allocated_map[memory.ptr].comm.barrier()
            self._WORKSPACE_CACHE[self._key] = memory, workspace
        return self._WORKSPACE_CACHE[self._key]

    def _check_sizes(self) -> None:
        index = self._kernels.index
        for name, value in (("top_k", self.top_k), ("num_experts", self.num_experts)):
            if not isinstance(value, int) or value <= 0:
                raise InvalidArgument(f"{name} must be a positive int, got {value!r}")
        if not 0 < self.ep_size <= index.MAX_RANKS or self.num_experts < self.ep_size:
            raise InvalidArgument(f"{self.ep_size} ranks: at most {index.MAX_RANKS}, and an expert for each")
        expert_parallel.check_statistics_size(self.eplb_stats_num_experts, self.num_experts)
        supported = self._kernels.supported_top_k
        if supported is not None and self.top_k not in supported:
            raise InvalidArgument(f"top_k={self.top_k}: the kernels take {', '.join(map(str, supported))}")

    def _laid_out(self, size: int, hidden_size: int | None) -> torch.Tensor:
        kernels, index = self._kernels, self._kernels.index
        arguments = (self.ep_size, self.max_num_tokens, self.top_k)
        if isinstance(size, WorkspaceSize):
            dispatch, combine = size.dispatch_bytes, size.combine_bytes
        elif hidden_size is not None:
            combine = self.ep_size * self.max_num_tokens * hidden_size * 2
            rest = kernels.laid_out(*arguments, 0, combine, self.eplb_stats_num_experts)[index.WORKSPACE_SIZE_INDEX]
            dispatch = (size - int(rest)) // index.WORKSPACE_ALIGNMENT * index.WORKSPACE_ALIGNMENT
        else:
            raise UnsupportedArgument(
                "comm.MoeAlltoAll(workspace_size_per_rank=): FlashInfer 0.7.1 to 0.7.2.post1 take any number; from "
                "0.7.3 on the kernels need to know what of it is for combine. Give what "
                "moe_a2a_get_workspace_size_per_rank returned (a sum with it will do), or hidden_size too."
            )
        if dispatch > 0:
            metainfo = kernels.laid_out(*arguments, dispatch, combine, self.eplb_stats_num_experts)
            if int(metainfo[index.WORKSPACE_SIZE_INDEX]) <= size:
                return torch.as_tensor(metainfo)
        raise InvalidArgument(f"workspace_size_per_rank={int(size)} is too small for what this instance was asked for")

    @classmethod
    def get_moe_workspace_size_per_rank(
        cls,
        ep_size: int,
        top_k: int,
        max_num_tokens: int,
        hidden_size: int,
        extra_payload_bytes_per_token: int = 0,
        eplb_stats_num_experts: int = 0,
        *,
        backend: str = "trtllm",
    ) -> WorkspaceSize:
        """Bytes of a rank's workspace for 16-bit hidden states, expert ids, weights and what is `extra`."""
        _check_backend(backend)
        dispatch = 2 * hidden_size + 8 * top_k + extra_payload_bytes_per_token
        return workspace_size(
            cls._open_kernels(), ep_size, max_num_tokens, dispatch, 2 * hidden_size, eplb_stats_num_experts
        )

    @property
    def eplb_gathered_stats(self) -> torch.Tensor | None:
        """``[ep_size, eplb_stats_num_experts]`` int32, each rank's statistics; of a round with them, until combine."""
        return self._gathered

    def dispatch(
        self,
        token_selected_experts: torch.Tensor,
        input_payloads: list[torch.Tensor],
        runtime_max_tokens_per_rank: int,
        invalid_token_expert_id: int | None = None,
        expert_id_payload_index: int | None = None,
        eplb_local_stats: torch.Tensor | None = None,
        active_rank_mask: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """Send each token's rows to the ranks of its experts, ``[local_num_tokens, top_k]`` int32.

        Each of one to four payloads is ``[local_num_tokens, *]``; its rows arrive as a view of the workspace,
        ``[ep_size, runtime_max_tokens_per_rank, *]``. Expert ids of rows that hold no token become
        `invalid_token_expert_id` in the payload of that index; other payloads are stale there.
        """
        index = self._kernels.index
        if len(input_payloads) > index.MAX_PAYLOADS:
            raise UnsupportedArgument(
                f"comm.MoeAlltoAll.dispatch: {len(input_payloads)} payloads: FlashInfer 0.7.1 to 0.7.2.post1 take six, "
                f"the kernels of 0.7.3 and later {index.MAX_PAYLOADS}. Put several into one row of bytes."
            )
        row_bytes = [payload.shape[1] * payload.element_size() for payload in input_payloads]
        rows = self.ep_size * runtime_max_tokens_per_rank
        needed = sum(aligned(rows * each) for each in row_bytes)
        if needed > (room := int(self.metainfo[index.DISPATCH_PAYLOAD_SIZE_INDEX])):
            raise InvalidArgument(f"the payloads of {rows} rows are {needed} bytes, more than the {room} reserved")
        offsets, combine_offset, gathered = self._launch_dispatch(
            token_selected_experts,
            input_payloads,
            runtime_max_tokens_per_rank,
            invalid_token_expert_id,
            eplb_local_stats,
            self._widened(active_rank_mask),
        )
        received = [
            self._view(int(offset), payload.dtype, runtime_max_tokens_per_rank, payload.shape[1])
            for offset, payload in zip(offsets, input_payloads, strict=True)
        ]
        if invalid_token_expert_id is not None and expert_id_payload_index is not None:
            self._launch_sanitize(received[expert_id_payload_index], invalid_token_expert_id)
        self._local_num_tokens, self._combine_offset = token_selected_experts.shape[0], int(combine_offset)
        self._gathered = None
        if eplb_local_stats is not None:
            size = self.ep_size * self.eplb_stats_num_experts * 4
            statistics = self._slice.narrow(0, int(gathered), size).view(torch.int32)
            self._gathered = statistics.view(self.ep_size, self.eplb_stats_num_experts)
        return received

    def get_combine_payload_tensor_in_workspace(
        self, runtime_max_tokens_per_rank: int, hidden_size: int, dtype: torch.dtype
    ) -> torch.Tensor:
        """Where the experts may write ``[ep_size, runtime_max_tokens_per_rank, hidden_size]``: saves combine a copy."""
        needed = self.ep_size * runtime_max_tokens_per_rank * hidden_size * dtype.itemsize
        if needed > (room := self._combine_room()):
            raise InvalidArgument(f"a combine payload of {needed} bytes is larger than the {room} reserved")
        return self._view(self._combine_offset, dtype, runtime_max_tokens_per_rank, hidden_size)

    def combine(
        self,
        payload: torch.Tensor,
        runtime_max_tokens_per_rank: int,
        payload_in_workspace: bool = False,
        output_dtype: torch.dtype | None = None,
        output_scales: torch.Tensor | None = None,
        output_scalar_scale: float = 1.0,
        sf_layout: Any = None,
        output: torch.Tensor | None = None,
        *,
        use_low_precision: bool = False,
        active_rank_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Each token's rows of `payload`, ``[ep_size, runtime_max_tokens_per_rank, *]``, summed over ranks.

        Bfloat16, float16 or float32, and so is the sum; with `use_low_precision` rows travel as fp8 and the sum is
        bfloat16. `output_scalar_scale` and `sf_layout` are of quantized output, which these kernels do not have.
        """
        result = torch.bfloat16 if use_low_precision else payload.dtype
        if payload.dtype not in _COMBINED or output_scales is not None or output_dtype not in (None, result):
            raise UnsupportedArgument(
                f"comm.MoeAlltoAll.combine from {payload.dtype} to {output_dtype or result}: FlashInfer 0.7.1 to "
                "0.7.2.post1 have kernels for fp8 rows and quantized sums. Combine bfloat16 rows, and quantize the sum "
                "with mxfp8_quantize or nvfp4_quantize."
            )
        if not payload.is_contiguous():
            raise InvalidArgument("a combine payload must be contiguous")
        if payload.nbytes > (room := self._combine_room()):
            raise InvalidArgument(f"a combine payload of {payload.nbytes} bytes is larger than the {room} reserved")
        shape = (self._local_num_tokens, payload.shape[2])
        if output is not None and (
            output.dtype is not result or output.shape != shape or not output.is_contiguous()
            or output.device != payload.device
        ):  # fmt: skip
            raise InvalidArgument(f"output must be contiguous {result} of shape {shape} beside the payload")
        in_workspace = self._slice.data_ptr() + self._combine_offset
        if payload_in_workspace and payload.data_ptr() != in_workspace:
            raise InvalidArgument("payload_in_workspace=True, but payload is elsewhere")
        direct = output if output is not None and result is payload.dtype else payload.new_empty(shape)
        self._launch_combine(
            payload,
            runtime_max_tokens_per_rank,
            payload_in_workspace,
            use_low_precision,
            self._widened(active_rank_mask),
            direct,
        )
        self._gathered = None
        if direct is output or result is payload.dtype:
            return direct
        return direct.to(result) if output is None else output.copy_(direct)

    def _launch_dispatch(
        self,
        ids: torch.Tensor,
        payloads: Sequence[torch.Tensor],
        tokens: int,
        invalid_id: int | None,
        statistics: torch.Tensor | None,
        mask: torch.Tensor | None,
    ) -> tuple[Sequence[int], int, int]:
        """Where in this rank's slice are: what is received of each payload, the combine region, the statistics."""
        if self._enable_pdl is None:
            from flashinfer.utils import device_support_pdl

            self._enable_pdl = bool(device_support_pdl(ids.device))
        found: tuple[Sequence[int], int, int] = self._kernels.dispatch(
            ids,
            [_on_a_boundary(payload) for payload in payloads],
            self.workspace,
            self.metainfo,
            tokens,
            self.ep_rank,
            self.ep_size,
            self.top_k,
            self.num_experts,
            statistics,
            False,
            -1,
            -1 if invalid_id is None else invalid_id,
            False,
            self.enable_rank_mask,
            mask,
            _TIMEOUT_SEC,
            self._enable_pdl,
        )
        return found

    def _launch_sanitize(self, received_ids: torch.Tensor, invalid_id: int) -> None:
        """Make the ids of rows that hold no token `invalid_id`."""
        self._kernels.sanitize(received_ids, self.workspace, self.metainfo, self.ep_rank, invalid_id, self._enable_pdl)

    def _launch_combine(
        self,
        payload: torch.Tensor,
        tokens: int,
        in_workspace: bool,
        low_precision: bool,
        mask: torch.Tensor | None,
        output: torch.Tensor,
    ) -> None:
        self._kernels.combine(
            _on_a_boundary(payload),
            self._local_num_tokens,
            self.workspace,
            self.metainfo,
            tokens,
            self.ep_rank,
            self.ep_size,
            self.top_k,
            self._combine_offset,
            in_workspace,
            low_precision,
            False,
            self.enable_rank_mask,
            mask,
            output,
            _TIMEOUT_SEC,
            self._enable_pdl,
            False,
        )

    def checkpoint_prepare(self) -> None:
        """Release the workspace's memory, keeping its addresses; on every rank, between rounds."""
        _native("nvlink_common").unmap_mnnvl_memory(self.mnnvl_mem)

    def checkpoint_restore(self, comm_backend: Any) -> None:
        """Back the workspace with new memory, over a communicator of the same ranks; on every rank."""
        if _native("nvlink_common").remap_mnnvl_memory(self.mnnvl_mem, comm_backend):
            self._kernels.initialize(self.workspace, self.metainfo, self.ep_rank, self.ep_size)
            comm_backend.barrier()

    def _reset_workspace(self) -> None:
        """Forget the shared workspace; this instance is of no more use."""
        torch.cuda.synchronize()
        self._WORKSPACE_CACHE.pop(self._key, None)
        rounds_of(self).destroy()

    def _combine_room(self) -> int:
        return int(self.metainfo[self._kernels.index.COMBINE_INPUT_SIZE_INDEX])

    def _view(self, offset: int, dtype: torch.dtype, tokens: int, columns: int) -> torch.Tensor:
        key = (offset, dtype, tokens, columns)
        view = self._views.get(key)
        if view is None:
            size = self.ep_size * tokens * columns * dtype.itemsize
            view = self._slice.narrow(0, offset, size).view(dtype).view(self.ep_size, tokens, columns)
            self._views[key] = view
        return view

    def _widened(self, mask: torch.Tensor | None) -> torch.Tensor | None:
        """A mask in the kernels' number of words; one for at most 64 ranks has a single word in older code."""
        if mask is None or mask.numel() == self._kernels.mask_words:
            return mask
        widened = torch.zeros(self._kernels.mask_words, dtype=torch.uint64, device="cpu")
        widened.view(torch.int64)[: mask.numel()] = mask.view(torch.int64)
        return widened


def _on_a_boundary(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that starts on 16 bytes, as these kernels need it and the older ones do not."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()

"""moe_ep's communication API where FlashInfer has none (0.7.1): one-sided, over the facade's comm.MoeAlltoAll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch

from ..errors import FeatureUnavailable, InvalidArgument
from . import expert_parallel

_BYTES_PER_TOKEN: dict[str, Callable[[int], int]] = {
    "BF16": lambda hidden: 2 * hidden,
    "FP16": lambda hidden: 2 * hidden,
    "FP8PerTensor": lambda hidden: hidden,
    "DeepSeekFp8": lambda hidden: hidden + 4 * -(-hidden // 128),
    "MXFP8": lambda hidden: hidden + -(-hidden // 32),
    "NVFP4": lambda hidden: -(-hidden // 2) + -(-hidden // 16),
    "MXFP4": lambda hidden: -(-hidden // 2) + -(-hidden // 32),
}


@dataclass(frozen=True)
class MoEEpCommParams:
    """Sizes of an expert-parallel group: what its workspace is laid out for."""

    num_experts: int
    top_k: int
    max_tokens_per_rank: int
    hidden_size: int
    dtype: torch.dtype | None = None
    dispatch_format: Any = None
    invalid_expert_id: int = -1

    def __post_init__(self) -> None:
        for name in ("num_experts", "top_k", "max_tokens_per_rank", "hidden_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value <= 0:
                raise InvalidArgument(f"MoEEpCommParams.{name} must be a positive int, got {value!r}")
        if self.top_k > self.num_experts:
            raise InvalidArgument(f"MoEEpCommParams.top_k={self.top_k} is more than {self.num_experts} experts")
        if 0 <= self.invalid_expert_id < self.num_experts:
            raise InvalidArgument(f"MoEEpCommParams.invalid_expert_id={self.invalid_expert_id} is an expert's")
        if self.dispatch_format is not None:
            from flashinfer.fused_moe.api import QuantFormat

            known = isinstance(self.dispatch_format, QuantFormat) and self.dispatch_format.name in _BYTES_PER_TOKEN
            if not known:
                raise InvalidArgument(
                    f"MoEEpCommParams.dispatch_format must be None or a QuantFormat of {', '.join(_BYTES_PER_TOKEN)}, "
                    f"got {self.dispatch_format!r}"
                )

    @property
    def token_dtype(self) -> torch.dtype:
        """What the experts' outputs are: `dtype`, or bfloat16."""
        return torch.bfloat16 if self.dtype is None else self.dtype

    @property
    def dispatch_bytes_per_token(self) -> int:
        """Bytes of one dispatched token, scale factors included."""
        if self.dispatch_format is None:
            return int(self.hidden_size * self.token_dtype.itemsize)
        return _BYTES_PER_TOKEN[self.dispatch_format.name](self.hidden_size)


@dataclass(frozen=True)
class MoEEpDispatchResult:
    """What a rank received: ``ep_size * tokens_per_rank`` rows, views of the workspace until combine."""

    hidden_states: torch.Tensor
    topk_ids: torch.Tensor
    topk_weights: torch.Tensor | None
    tokens_per_rank: int
    hidden_states_scale: torch.Tensor | None = None
    eplb_gathered_stats: torch.Tensor | None = None


class MoEEpCommunication:
    """Dispatch and combine of one expert-parallel group, a round at a time."""

    backend_name: ClassVar[str]
    supports_cuda_graph: ClassVar[bool] = True


_BACKENDS: dict[str, type] = {}
_Backend = TypeVar("_Backend", bound=type)


def register_communication(name: str) -> Callable[[_Backend], _Backend]:
    """Register a class under the name that `create_communication` takes."""

    def register(cls: _Backend) -> _Backend:
        cls.backend_name = name  # type: ignore[attr-defined]
        _BACKENDS[name] = cls
        return cls

    return register


def available_communication_backends() -> list[str]:
    """Registered backends that this machine can run."""
    return sorted(name for name, cls in _BACKENDS.items() if cls.is_platform_supported())  # type: ignore[attr-defined]


def create_communication(bootstrap: Any, params: MoEEpCommParams, backend: Any, **options: Any) -> Any:
    """A communication object of `backend`, a registered name or a configuration with a `backend_name`."""
    name = getattr(backend, "backend_name", backend)
    if not isinstance(name, str):
        raise TypeError(f"backend must be a name or have a backend_name, got {backend!r}")
    if name in ("cake", "nvlink_two_sided"):
        raise FeatureUnavailable(
            f"moe_ep.create_communication of {name!r}: FlashInfer 0.7.2 and later have it; installed is 0.7.1. "
            "Use NVLinkOneSidedConfig."
        )
    if name not in _BACKENDS:
        raise KeyError(f"unknown communication backend {name!r}; available: {sorted(_BACKENDS)}")
    if not isinstance(backend, str):
        options["config"] = backend
    return _BACKENDS[name](bootstrap, params, **options)


@dataclass
class NVLinkOneSidedConfig:
    """Options of `NVLinkOneSidedAlltoAll`, as 0.7.2 has them; what 0.7.4 has besides is its adapter's to refuse."""

    backend_name: str = "nvlink_one_sided"
    extra_payload_bytes_per_token: int = 0
    eplb_stats_num_experts: int = 0
    enable_rank_mask: bool = False
    use_low_precision_combine: bool = False
    comm_backend: Any = None


def nvlink_supported() -> bool:
    """Whether this rank's GPU has NVLinks that are all up."""
    try:
        import pynvml
        from flashinfer.comm.mnnvl import MnnvlMemory

        if not torch.cuda.is_available():
            return False
        pynvml.nvmlInit()  # supports_mnnvl of 0.7.1 expects it done
    except Exception:  # NVML's own errors have no common base with an import's
        return False
    try:
        return bool(MnnvlMemory.supports_mnnvl())
    except (pynvml.NVMLError, RuntimeError, OSError, ImportError):
        return False
    finally:
        pynvml.nvmlShutdown()


@register_communication("nvlink_one_sided")
class NVLinkOneSidedAlltoAll(MoEEpCommunication):
    """Each token goes to the ranks of its experts in one launch; the sum of what they make of it comes back."""

    lamport_enabled: ClassVar[bool] = False
    lamport_max_tokens: ClassVar[int] = 0

    def __init__(self, bootstrap: Any, params: MoEEpCommParams, config: NVLinkOneSidedConfig | None = None) -> None:
        self.config = config = NVLinkOneSidedConfig() if config is None else config
        self.bootstrap, self.params = bootstrap, params
        self.ep_rank: int = bootstrap.rank
        self.ep_size: int = bootstrap.world_size
        if params.num_experts % self.ep_size:
            raise InvalidArgument(f"{params.num_experts} experts cannot be shared out evenly to {self.ep_size} ranks")
        if config.extra_payload_bytes_per_token < 0:
            raise InvalidArgument("extra_payload_bytes_per_token must not be negative")
        expert_parallel.check_statistics_size(config.eplb_stats_num_experts, params.num_experts)
        self.num_local_experts = params.num_experts // self.ep_size
        group = self._group()
        if (group.Get_size(), group.Get_rank()) != (self.ep_size, self.ep_rank):
            raise InvalidArgument(
                f"the communicator is rank {group.Get_rank()} of {group.Get_size()}, "
                f"the bootstrap rank {self.ep_rank} of {self.ep_size}"
            )
        # Together, so that no rank fails alone while its peers wait.
        unsupported = [
            rank for rank, supported in enumerate(group.allgather(self.is_platform_supported())) if not supported
        ]
        if unsupported:
            raise RuntimeError(f"the NVLink backends are not supported on ranks {unsupported}")
        dispatch = params.dispatch_bytes_per_token + 8 * params.top_k + config.extra_payload_bytes_per_token
        combine = params.hidden_size * max(params.token_dtype.itemsize, 2)
        self._combine_room = self.ep_size * params.max_tokens_per_rank * combine
        self._alltoall: Any = self._open_alltoall(group, dispatch, combine)
        self._tokens = 0
        self._buffer: torch.Tensor | None = None

    def _group(self) -> Any:
        """The ranks' communicator."""
        from flashinfer.comm.comm_backend import TorchDistBackend

        return self.config.comm_backend or TorchDistBackend(group=self.bootstrap.process_group)

    def _open_alltoall(self, group: Any, dispatch_bytes: int, combine_bytes: int) -> Any:
        """A comm.MoeAlltoAll that has room for so many bytes of each token."""
        from flashinfer.comm.mapping import Mapping
        from flashinfer.comm.mnnvl import MnnvlConfig

        from ..namespace import facade_object

        params, config = self.params, self.config
        size = facade_object("comm.trtllm_moe_alltoall.moe_a2a_get_workspace_size_per_rank")(
            self.ep_size, params.max_tokens_per_rank, dispatch_bytes, combine_bytes, config.eplb_stats_num_experts
        )
        return facade_object("comm.trtllm_moe_alltoall.MoeAlltoAll")(
            Mapping(
                world_size=self.ep_size,
                rank=self.ep_rank,
                gpus_per_node=self.ep_size,
                tp_size=self.ep_size,
                moe_ep_size=self.ep_size,
            ),
            max_num_tokens=params.max_tokens_per_rank,
            top_k=params.top_k,
            num_experts=params.num_experts,
            workspace_size_per_rank=size,  # it knows what of it is for combine
            mnnvl_config=MnnvlConfig(comm_backend=group),
            eplb_stats_num_experts=config.eplb_stats_num_experts,
            enable_rank_mask=config.enable_rank_mask,
        )

    @classmethod
    def is_platform_supported(cls) -> bool:
        """Whether this rank could run it; asks nobody else."""
        return nvlink_supported()

    @property
    def alltoall(self) -> Any:
        """The comm.MoeAlltoAll below."""
        return self._alltoall

    def active_rank_mask(self, active_ranks: Sequence[int]) -> torch.Tensor:
        """A mask of the ranks that take part, for `active_rank_mask=`; on the host."""
        from flashinfer.comm.trtllm_moe_alltoall import moe_a2a_active_rank_mask

        ranks = [int(rank) for rank in active_ranks]
        if any(not 0 <= rank < self.ep_size for rank in ranks):
            raise InvalidArgument(f"ranks {ranks} are not all in [0, {self.ep_size})")
        mask: torch.Tensor = moe_a2a_active_rank_mask(ranks, self.ep_size)
        return mask

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
    ) -> MoEEpDispatchResult:
        """Send ``[local_num_tokens, *]`` rows to the ranks of their experts, ``[local_num_tokens, top_k]``.

        Every rank passes the same `runtime_max_tokens_per_rank` (the capacity by default), and `topk_weights` on all
        ranks or on none; neither can be checked here.
        """
        tokens = runtime_max_tokens_per_rank
        tokens = self.params.max_tokens_per_rank if tokens is None else tokens
        ids = topk_ids if topk_ids.dtype is torch.int32 else topk_ids.to(torch.int32)
        payloads = [hidden_states] if hidden_states_scale is None else [hidden_states, hidden_states_scale]
        index = len(payloads)
        payloads.append(ids)
        if topk_weights is not None:
            payloads.append(topk_weights)
        received = [
            each.flatten(0, 1)
            for each in self._alltoall.dispatch(
                ids,
                payloads,
                tokens,
                invalid_token_expert_id=self.params.invalid_expert_id,
                expert_id_payload_index=index,
                eplb_local_stats=eplb_local_stats,
                active_rank_mask=active_rank_mask,
            )
        ]
        self._tokens = tokens
        return MoEEpDispatchResult(
            received[0],
            received[index],
            None if topk_weights is None else received[index + 1],
            tokens,
            None if hidden_states_scale is None else received[1],
            self._alltoall.eplb_gathered_stats,
        )

    def get_combine_input_buffer(self, dtype: torch.dtype) -> torch.Tensor:
        """Where the experts may write ``[ep_size * tokens_per_rank, hidden_size]``: saves combine a copy."""
        needed = self.ep_size * self._tokens * self.params.hidden_size * dtype.itemsize
        if needed > self._combine_room:
            raise InvalidArgument(f"{needed} bytes of {dtype} are more than the {self._combine_room} reserved")
        buffer: torch.Tensor = self._alltoall.get_combine_payload_tensor_in_workspace(
            self._tokens, self.params.hidden_size, dtype
        ).flatten(0, 1)
        self._buffer = buffer
        return buffer

    def combine(
        self,
        expert_output: torch.Tensor,
        *,
        output: torch.Tensor | None = None,
        active_rank_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Each token's rows summed over ranks, ``[local_num_tokens, hidden]`` of the type of `expert_output`."""
        low = self.config.use_low_precision_combine
        # The kernels make bfloat16 of rows that travel as fp8; the contract is the rows' own type.
        converted = low and expert_output.dtype is not torch.bfloat16
        in_workspace = self._buffer is not None and expert_output.data_ptr() == self._buffer.data_ptr()
        result: torch.Tensor = self._alltoall.combine(
            expert_output.view(self.ep_size, self._tokens, -1),
            self._tokens,
            payload_in_workspace=in_workspace,
            output=None if converted else output,
            use_low_precision=low,
            active_rank_mask=active_rank_mask,
        )
        self._buffer = None
        if converted:
            return result.to(expert_output.dtype) if output is None else output.copy_(result)
        return result

    def checkpoint_prepare(self) -> None:
        """Release the workspace's memory, keeping its addresses; on every rank, between rounds."""
        self._alltoall.checkpoint_prepare()

    def checkpoint_restore(self, comm_backend: Any) -> None:
        """Back the workspace with new memory; on every rank."""
        self._alltoall.checkpoint_restore(comm_backend)

    def destroy(self) -> None:
        """Leave the group. The workspace stays for the next instance of its sizes: 0.7.1 frees none."""
        self._alltoall = None
        self._buffer = None

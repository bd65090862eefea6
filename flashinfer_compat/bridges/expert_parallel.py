"""Expert-parallel communication: rounds of dispatch and combine, by one set of rules checked before any launch."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Sequence
from types import ModuleType
from typing import Any, ClassVar

import torch

from ..errors import FeatureUnavailable, InvalidArgument, RoundError
from .planner import is_capturing


class Rounds:
    """The rounds of one instance on a workspace that other instances may share.

    A round is a dispatch and its combine. 0.7.1 to 0.7.2.post1 accept overlapping rounds, more rows than a round was
    opened for and a combine of another size, and corrupt data (csrc/trtllm_moe_alltoall.cu).

    What a rank cannot see without a device synchronisation or a collective is not checked: ranks that pass different
    sizes, and `topk_weights` on some ranks only.
    """

    _open: ClassVar[dict[Hashable, Rounds]] = {}

    def __init__(self, *, capacity: int, top_k: int, workspace: Hashable) -> None:
        self.capacity = capacity
        self.top_k = top_k
        self.workspace = workspace
        self.tokens = 0
        self.destroyed = False

    def check_dispatch(self, ids: torch.Tensor, payloads: Sequence[torch.Tensor], tokens: int) -> None:
        """Refuse a dispatch that is out of turn or does not fit.

        `ids` is ``[local_num_tokens, top_k]``, each payload ``[local_num_tokens, *]``; `tokens` is the round's size.
        """
        self._check_usable("dispatch")
        owner = self._open.get(self.workspace)
        if owner is self:
            raise RoundError("dispatch called twice without an intervening combine")
        if owner is not None:
            raise RoundError(
                "another instance that shares this workspace has a dispatch awaiting its combine; "
                "instances that share a workspace must run their rounds one after another"
            )
        if not 0 < tokens <= self.capacity:
            raise InvalidArgument(f"runtime_max_tokens_per_rank={tokens} must be in (0, {self.capacity}]")
        if ids.dim() != 2 or ids.shape[1] != self.top_k:
            raise InvalidArgument(f"expert ids must be [local_num_tokens, {self.top_k}], got {tuple(ids.shape)}")
        rows = ids.shape[0]
        if rows > tokens:
            raise InvalidArgument(f"{rows} local tokens are more than runtime_max_tokens_per_rank={tokens}")
        for payload in payloads:
            if payload.dim() != 2 or payload.shape[0] != rows:
                raise InvalidArgument(f"a payload must be [{rows}, *], got {tuple(payload.shape)}")
            if not payload.is_contiguous():
                raise InvalidArgument("a payload must be contiguous")

    def open(self, tokens: int) -> None:
        self.tokens = tokens
        self._open[self.workspace] = self

    def check_open(self, call: str, tokens: int | None = None) -> None:
        """Refuse `call` outside a round, or for another size than the round's."""
        self._check_usable(call)
        if self._open.get(self.workspace) is not self:
            raise RoundError(f"{call} called before dispatch")
        if tokens is not None and tokens != self.tokens:
            raise InvalidArgument(
                f"{call} for runtime_max_tokens_per_rank={tokens}, but its round was dispatched for {self.tokens}"
            )

    def close(self) -> None:
        if self._open.get(self.workspace) is self:
            del self._open[self.workspace]

    def check_no_round(self, call: str) -> None:
        """Refuse `call` while any instance that shares the workspace is in a round."""
        self._check_usable(call)
        if self.workspace in self._open:
            raise RoundError(f"{call} called between dispatch and combine")

    def destroy(self) -> None:
        self.close()
        self.destroyed = True

    def _check_usable(self, call: str) -> None:
        if self.destroyed:
            raise RoundError(f"{call} called on a communication that has been destroyed")


def check_mask(enabled: bool, mask: torch.Tensor | None, rank: int) -> None:
    """Refuse a mask of active ranks that the kernels of this instance were not built for, and the other way round.

    Every release raises from C++ where a mask is missing or leaves out its own `rank`: on this rank alone, as here, but
    with an error that engines do not expect.
    """
    if not enabled:
        if mask is not None:
            raise InvalidArgument("active_rank_mask requires enable_rank_mask=True")
    elif mask is None:
        raise InvalidArgument("enable_rank_mask=True requires an active_rank_mask on every dispatch and combine")
    elif is_capturing():
        raise RoundError("a round with an active_rank_mask cannot be captured: the graph would keep this mask")
    elif mask.device.type != "cpu" or mask.numel() <= rank // 64 or not is_marked(mask, rank):
        raise InvalidArgument(f"active_rank_mask must be on the host, and mark this rank, {rank}")


def is_marked(mask: torch.Tensor, rank: int) -> bool:
    return bool(int(mask[rank // 64]) >> rank % 64 & 1)


def check_statistics(experts: int, local: torch.Tensor | None) -> None:
    """Refuse statistics of another number of experts than the workspace was laid out for."""
    if local is not None and (experts == 0 or tuple(local.shape) != (experts,)):
        raise InvalidArgument(
            f"eplb_local_stats must be [{experts}], the eplb_stats_num_experts of this instance, "
            f"got {tuple(local.shape)}"
        )


def check_statistics_size(experts: int, num_experts: int) -> None:
    """Refuse to lay a workspace out for statistics of more experts than there are."""
    if not 0 <= experts <= num_experts:
        raise InvalidArgument("eplb_stats_num_experts must be in [0, num_experts]")


_MODULES: dict[str, ModuleType] = {}


def native_module(module: str, wanted: str, instead: str) -> ModuleType:
    """A module of moe_ep's communication, on which `wanted` is built; imported by the first call alone."""
    found = _MODULES.get(module)
    if found is None:
        try:
            found = importlib.import_module(f"flashinfer.moe_ep.backends.split.comm.{module}")
        except ImportError as error:
            raise FeatureUnavailable(
                f"flashinfer.{wanted}: the installed FlashInfer has no moe_ep module {module} to build it on. {instead}"
            ) from error
        _MODULES[module] = found
    return found


def of_the_facade(result: Any) -> Any:
    """A communication object of FlashInfer's, made one of the facade's class of the same name.

    That class is a subclass without state of its own, so the object only gains its methods.
    """
    from ..namespace import facade_object

    try:
        ours = facade_object(f"moe_ep.{type(result).__name__}")
    except AttributeError:
        return result  # a backend that somebody else registered
    if isinstance(ours, type) and issubclass(ours, type(result)):
        result.__class__ = ours
    if "_alltoall" in getattr(result, "__dict__", {}):  # up to 0.7.2.post1
        from .communication import over_the_facades_alltoall

        over_the_facades_alltoall(result)
    return result

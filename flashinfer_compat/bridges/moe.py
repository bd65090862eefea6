"""Fused MoE: how expert outputs are finalized, and the names of MegaMoE's options."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import torch

from .. import selection
from ..errors import InvalidArgument

#: Where FlashInfer has its finalize kernels, and the one whose order of summation depends on the number of tokens.
_FINALIZE_SOURCE = "data/csrc/fused_moe/trtllm_backend/trtllm_fused_moe_dev_kernel.cu"
_SMALL_BATCH_KERNEL = "finalizeKernelSmallBatch"


class FinalizeMode(enum.Enum):
    """FlashInfer's own of 0.7.4 (moe_ep/config.py), for releases that only have what `AUTO` stands for."""

    AUTO = 0
    DEFAULT = 1
    PERSISTENT = 2
    CAKE = 3
    NONE = 4


def use_fused_finalize() -> bool:
    """What None stands for in 0.7.4: the fused finalize adds with atomics (fused_moe/core.py)."""
    return not torch.are_deterministic_algorithms_enabled()


def routing_weights_as_newest(native: type) -> type | None:
    """The attribute under the name of 0.7.4, on a configuration that has it as ``apply_topk_in_fc1``."""
    if "apply_topk_in_fc1" not in getattr(native, "__dataclass_fields__", {}):
        return None

    class RoutingWeights:
        apply_topk_in_fc1: Any

        @property
        def apply_routing_weights_before_fc2(self) -> Any:
            return self.apply_topk_in_fc1

    return RoutingWeights


def finalize_depends_on_batch() -> bool:
    """Whether the installed trtllm-gen finalize adds a token's experts in an order that the number of tokens decides.

    From 0.7.2.post1 on few tokens with a top-k above 4 take another kernel (#6546). Where there is no source to look at
    it is taken to do so.
    """
    directory = selection.package_directory()
    source = directory / _FINALIZE_SOURCE if directory else None
    if source is None or not source.is_file():
        return True
    return _SMALL_BATCH_KERNEL in source.read_text(encoding="utf-8", errors="replace")


def batch_invariant_finalize(
    unfinalized: Sequence[torch.Tensor], *, out: torch.Tensor | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The outputs of the experts summed for each token, in the same order whatever else is in the batch.

    `unfinalized` is what a trtllm MoE function returns with ``do_finalize=False``: the experts' rows (permuted rows,
    hidden), the routing weights (tokens, top-k), and the row of each token's each expert (tokens × top-k) of int32, -1
    for none. The sum is made in float32 over k = 0, 1, … and rounded once: to `out`, a tensor (tokens, hidden) that is
    returned, or to a new one of `dtype` (the rows' own by default).

    It synchronises nothing. In CUDA-graph capture its two float32 tensors (tokens, hidden) come from the graph's pool.
    Raises `InvalidArgument` for shapes that do not belong together.
    """
    rows, weights, permuted = unfinalized[:3]
    if rows.ndim != 2 or weights.ndim != 2 or permuted.numel() != weights.numel():
        raise InvalidArgument(
            f"rows {tuple(rows.shape)}, weights {tuple(weights.shape)} and permuted rows {tuple(permuted.shape)} must "
            "be (permuted rows, hidden), (tokens, top-k) and (tokens × top-k,), as do_finalize=False returns them"
        )
    tokens, top_k = weights.shape
    if out is None:
        out = torch.empty(tokens, rows.size(1), dtype=dtype or rows.dtype, device=rows.device)
    elif out.shape != (tokens, rows.size(1)) or out.device != rows.device or (dtype or out.dtype) != out.dtype:
        raise InvalidArgument(
            f"out is {tuple(out.shape)} of {out.dtype} on {out.device}; it must be {(tokens, rows.size(1))} of "
            f"{dtype or 'any type'} on {rows.device}"
        )
    permuted = permuted.view(tokens, top_k).long()
    total = torch.zeros(tokens, rows.size(1), dtype=torch.float32, device=rows.device)
    for k in range(top_k):
        row = permuted[:, k]
        # A row that is none may hold anything, NaN too: it is left out, not multiplied by zero.
        part = rows[row.clamp(min=0)].float().mul_(weights[:, k : k + 1].float())
        total += part.masked_fill_((row < 0).unsqueeze(1), 0.0)
    return out.copy_(total)

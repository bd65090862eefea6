"""Fused MoE: how expert outputs are finalized, and the names of MegaMoE's options."""

from __future__ import annotations

import enum
from typing import Any

import torch


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

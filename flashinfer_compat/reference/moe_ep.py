"""`moe_ep`'s communication, under FlashInfer's name for it; expert_parallel.py has it beside `comm.MoeAlltoAll`."""

from .expert_parallel import (
    BootstrapConfig,
    MoEEpCommParams,
    MoEEpDispatchResult,
    NVLinkOneSidedAlltoAll,
    NVLinkOneSidedConfig,
    create_communication,
)

__all__ = [
    "BootstrapConfig",
    "MoEEpCommParams",
    "MoEEpDispatchResult",
    "NVLinkOneSidedAlltoAll",
    "NVLinkOneSidedConfig",
    "create_communication",
]

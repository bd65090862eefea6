"""Expert-parallel layers before 0.7.2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...bridges import one_sided
from ...bridges.names import Supplied
from ...bridges.rules import new
from ..model import Lines


def _one_sided(factory: Callable[[], Any]) -> Supplied:
    return Supplied(factory=factory, note="over comm.MoeAlltoAll, as 0.7.2 has it (moe_ep/backends/split/comm)")


LINES: Lines = {
    "moe_ep.MoEEpCommParams": _one_sided(lambda: one_sided.MoEEpCommParams),
    "moe_ep.MoEEpCommunication": _one_sided(lambda: one_sided.MoEEpCommunication),
    "moe_ep.MoEEpDispatchResult": _one_sided(lambda: one_sided.MoEEpDispatchResult),
    "moe_ep.NVLinkOneSidedAlltoAll": _one_sided(lambda: one_sided.NVLinkOneSidedAlltoAll),
    "moe_ep.NVLinkOneSidedConfig": _one_sided(lambda: one_sided.NVLinkOneSidedConfig),
    "moe_ep.available_communication_backends": _one_sided(lambda: one_sided.available_communication_backends),
    "moe_ep.create_communication": _one_sided(lambda: one_sided.create_communication),
    "moe_ep.register_communication": _one_sided(lambda: one_sided.register_communication),
    "moe_ep.MoEEpTensors.__init__": new("0.7.2", "moe_ep/tensors.py", output=None),
    "moe_ep.Sm107_Mxfp8_Mxfp8_Bf16_Cutedsl_MegaMoeConfig.__init__": new(
        "0.7.2",
        "moe_ep/backends/mega/kernel/sm107/mxfp8_mxfp8_bf16_cutedsl/config.py",
        activation="swiglu",
        situ_beta=None,
        situ_linear_beta=None,
        kernel_variant="inference",
        combine_dtype="bf16",
    ),
    "moe_ep.Sm107_Nvfp4_Nvfp4_Bf16_Cutedsl_MegaMoeConfig.__init__": new(
        "0.7.2",
        "moe_ep/backends/mega/kernel/sm107/nvfp4_nvfp4_bf16_cutedsl/config.py",
        activation="swiglu",
        situ_beta=None,
        situ_linear_beta=None,
        input_norm_const=1.0,
        fc1_alpha=None,
        fc2_alpha=None,
        fc1_norm_const=None,
        kernel_variant="inference",
        combine_dtype="bf16",
    ),
}

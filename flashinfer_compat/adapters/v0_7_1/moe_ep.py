"""Expert-parallel layers before 0.7.2."""

from __future__ import annotations

from ...bridges.rules import new
from ..model import Lines

LINES: Lines = {
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

"""Expert-parallel layers before 0.7.4."""

from __future__ import annotations

from ...bridges import moe
from ...bridges.classes import Extended
from ...bridges.names import Supplied
from ...bridges.rules import Ignore, Renamed, new, new_values
from ..model import Lines

_FINALIZE_MODE = new("0.7.4", "moe_ep/config.py", finalize_mode=moe.FinalizeMode.AUTO)
_ROUTING_WEIGHTS = Renamed(
    parameter="apply_routing_weights_before_fc2",
    was="apply_topk_in_fc1",
    note="renamed in 0.7.4, which takes both (moe_ep/_compat.py)",
)
_NEWEST_NAME = Extended(
    mixin=moe.routing_weights_as_newest, note="apply_routing_weights_before_fc2 can be read, as on 0.7.4"
)

_LAUNCH = Ignore(adds={"enable_pdl": None}, note="only 0.7.4 can launch it so (moe_ep/backends/split/comm)")

LINES: Lines = {
    "moe_ep.Bf16CutedslMegaMoeConfig.__init__": (
        new(
            "0.7.4",
            "moe_ep/backends/mega/kernel/sm100/bf16_bf16_bf16_cutedsl/config.py",
            apply_routing_weights_before_fc2=True,
        ),
        _FINALIZE_MODE,
    ),
    "moe_ep.FleetParams.__init__": new("0.7.4", "moe_ep/config.py", tuning_live_tokens=None),
    "moe_ep.MoEEpMegaLayer.create_workspace": new("0.7.4", "moe_ep/modes/mega_layer.py", live_tokens=None, knobs=None),
    "moe_ep.MoEEpTensors.__init__": new(
        "0.7.4", "moe_ep/tensors.py", fc1_activation_per_token_scale=None, runtime_max_tokens_per_rank=None
    ),
    "moe_ep.Mxfp8CutedslMegaMoeConfig.__init__": (
        new(
            "0.7.4",
            "moe_ep/backends/mega/kernel/sm100/mxfp8_mxfp8_bf16_cutedsl/config.py",
            kernel_variant="inference",
            mma_tiler_mnk=None,
            cluster_shape_mn=None,
            schedule_policy=None,
            num_valid_tokens_tensor=None,
            activation="swiglu",
            situ_beta=None,
            situ_linear_beta=None,
            swiglu_alpha=None,
            swiglu_beta=None,
            apply_routing_weights_before_fc2=True,
        ),
        _FINALIZE_MODE,
        new_values(
            "0.7.4", "moe_ep/backends/mega/kernel/sm100/mxfp8_mxfp8_bf16_cutedsl/config.py", kind=("mxfp4_mxfp8",)
        ),
    ),
    "moe_ep.Nvfp4CutedslMegaMoeConfig.__init__": (
        _ROUTING_WEIGHTS,
        _FINALIZE_MODE,
        new(
            "0.7.4",
            "moe_ep/backends/mega/kernel/sm100/nvfp4_nvfp4_bf16_cutedsl/config.py",
            enable_fc1_activation_per_token_scale=False,
            num_valid_tokens_tensor=None,
            kernel_variant="inference",
            mma_tiler_mnk=None,
            cluster_shape_mn=None,
            schedule_policy=None,
        ),
    ),
    "moe_ep.Sm100_Bf16_Mxfp8_Bf16_Cutedsl_MegaMoeConfig.__init__": (
        _FINALIZE_MODE,
        new(
            "0.7.4", "moe_ep/backends/mega/kernel/sm100/bf16_mxfp8_bf16_cutedsl/config.py", num_valid_tokens_tensor=None
        ),
    ),
    "moe_ep.Sm100_Bf16_Nvfp4_Bf16_Cutedsl_MegaMoeConfig.__init__": (_ROUTING_WEIGHTS, _FINALIZE_MODE),
    "moe_ep.Sm107_Mxfp8_Mxfp4_Bf16_Cutedsl_MegaMoeConfig.__init__": (
        _ROUTING_WEIGHTS,
        new_values(
            "0.7.4", "moe_ep/backends/mega/kernel/sm107/mxfp8_mxfp4_bf16_cutedsl/config.py", kernel_variant=("auto",)
        ),
    ),
    "moe_ep.Sm107_Mxfp8_Mxfp8_Bf16_Cutedsl_MegaMoeConfig.__init__": (
        _ROUTING_WEIGHTS,
        new_values(
            "0.7.4", "moe_ep/backends/mega/kernel/sm107/mxfp8_mxfp8_bf16_cutedsl/config.py", kernel_variant=("auto",)
        ),
    ),
    "moe_ep.Sm107_Nvfp4_Nvfp4_Bf16_Cutedsl_MegaMoeConfig.__init__": (
        _ROUTING_WEIGHTS,
        new_values(
            "0.7.4", "moe_ep/backends/mega/kernel/sm107/nvfp4_nvfp4_bf16_cutedsl/config.py", kernel_variant=("auto",)
        ),
    ),
    "moe_ep.Sm90_Bf16_Bf16_Bf16_PushCake_MegaMoeConfig.__init__": new(
        "0.7.4",
        "moe_ep/backends/mega/kernel/sm90/bf16_bf16_bf16_push_cake/cake_config.py",
        pdl=None,
        pdl_late=None,
        fused_begin=None,
        fused_dispatch_max_tokens=None,
        grid_dispatch_min_tokens=None,
        compact_form=None,
        publish_form=None,
        per_route_publish_pdl=None,
        fc2_early_max_tokens=None,
        prefix_form=None,
        direct_place=None,
        direct_place_min_tokens=None,
        fc2_early_windows=None,
        wcx_max_tokens=None,
    ),
    "moe_ep.preprocess_mxfp8_cutedsl_mega_weights": new(
        "0.7.4", "moe_ep/backends/mega/kernel/sm100/mxfp8_mxfp8_bf16_cutedsl/weights.py", kernel_variant="inference"
    ),
    "moe_ep.preprocess_sm90_push_cake_bf16_mega_weights": new(
        "0.7.4", "moe_ep/backends/mega/kernel/sm90/bf16_bf16_bf16_push_cake/cake_weights.py", wcx=False
    ),
    "moe_ep.validate_mega_fleet_params": new("0.7.4", "moe_ep/core/validation/common.py", hidden_alignment=None),
    "moe_ep.Nvfp4CutedslMegaMoeConfig": _NEWEST_NAME,
    "moe_ep.Sm100_Bf16_Nvfp4_Bf16_Cutedsl_MegaMoeConfig": _NEWEST_NAME,
    "moe_ep.Sm107_Mxfp8_Mxfp4_Bf16_Cutedsl_MegaMoeConfig": _NEWEST_NAME,
    "moe_ep.Sm107_Mxfp8_Mxfp8_Bf16_Cutedsl_MegaMoeConfig": _NEWEST_NAME,
    "moe_ep.Sm107_Nvfp4_Nvfp4_Bf16_Cutedsl_MegaMoeConfig": _NEWEST_NAME,
    "moe_ep.FinalizeMode": Supplied(
        factory=lambda: moe.FinalizeMode, note="before 0.7.4 there is only what AUTO stands for (moe_ep/config.py)"
    ),
    "moe_ep.NVLinkOneSidedConfig.__init__": (
        new(
            "0.7.4",
            "moe_ep/backends/split/comm/nvlink_one_sided/config.py",
            cft=None,
            cft_max_tokens_for_dispatch=128,
            cft_max_tokens_for_combine=128,
            lamport=None,
            lamport_max_tokens=None,
            timeout_sec=300,
        ),
        _LAUNCH,
    ),
    "moe_ep.CakeAlltoAllConfig.__init__": _LAUNCH,
}

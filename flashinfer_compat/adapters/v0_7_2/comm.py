"""Communication before 0.7.2.post1."""

from __future__ import annotations

import torch

from ...bridges.names import AnsweredNo
from ...bridges.rules import Default, new, new_values
from ..model import Lines

LINES: Lines = {
    "comm.allreduce.create_allreduce_fusion_workspace": (
        new(
            "0.7.2.post1",
            "comm/allreduce.py",
            top_k=None,
            rms_eps=None,
            weight_bias=None,
            routed_scaling_factor=None,
            include_shared_expert=None,
            add_residual=None,
            write_residual_output=None,
            apply_rms_norm=None,
            output_dtype=None,
            dynamic_fp8=None,
            write_norm_output=None,
            config=None,
        ),
        new_values("0.7.2.post1", "comm/allreduce.py", backend=("mnnvl-cutedsl",)),
    ),
    "comm.mnnvl_cutedsl.MNNVLCuteDSLConfig.resolve": new(
        "0.7.2.post1", "comm/mnnvl_cutedsl/config.py", compute_capability=None
    ),
    "comm.mnnvl_cutedsl.StaticProfile.__init__": new(
        "0.7.2.post1", "comm/mnnvl_cutedsl/config.py", compute_capability=None
    ),
    "comm.mnnvl_cutedsl.StaticProfile.matches": new(
        "0.7.2.post1", "comm/mnnvl_cutedsl/config.py", compute_capability=None
    ),
    "comm.mnnvl_cutedsl_ar.MNNVLCuteDSLAllReduceFusionWorkspace.__init__": (
        Default(
            parameter="config", default=None, note="None stands for DEFAULT_CONFIG, the only one before 0.7.2.post1"
        ),
        new(
            "0.7.2.post1",
            "comm/mnnvl_cutedsl_ar.py",
            output_dtype=torch.bfloat16,
            write_norm_output=False,
            dynamic_fp8=False,
        ),
    ),
    "comm.mnnvl_cutedsl_ag.supports_all_gather_gated_residual_next_rmsnorm": AnsweredNo(
        note="the kernel is new in 0.7.2.post1"
    ),
    "comm.mnnvl_cutedsl_ag.supports_all_gather_rmsnorm_fp4_quantize": AnsweredNo(
        note="the kernel is new in 0.7.2.post1"
    ),
    "comm.mnnvl_cutedsl_moe_finalize.supports_moe_finalize_rmsnorm_allreduce": AnsweredNo(
        note="the kernel is new in 0.7.2.post1"
    ),
    "comm.tp_moe_finalize_rmsnorm.supports_tp_moe_finalize_rmsnorm": AnsweredNo(
        note="the kernel is new in 0.7.2.post1"
    ),
}

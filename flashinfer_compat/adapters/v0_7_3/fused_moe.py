"""Fused MoE before 0.7.4."""

from __future__ import annotations

from ...bridges import moe
from ...bridges.rules import Default, Ignore, new
from ..model import Lines

_WORKSPACE = Ignore(
    adds={"workspace_buffer": None},
    note="scratch of the caller's own from 0.7.4 on (fused_moe/core.py); allocated inside before",
)
_4OVER6 = new("0.7.4", "fused_moe/core.py", nvfp4_4over6=None)
_FUSED_FINALIZE = Default(
    parameter="use_fused_finalize",
    default=None,
    means=moe.use_fused_finalize,
    note="None follows torch's deterministic algorithms from 0.7.4 on, and is no value before (fused_moe/core.py)",
)

LINES: Lines = {
    "fused_moe.CuteDslConfig.__init__": new("0.7.4", "fused_moe/api.py", swap_ab=False),
    "fused_moe.CuteDslConfig.prepare_weights": new("0.7.4", "fused_moe/api.py", swap_ab=False),
    "fused_moe.PrimsTsConfig.prepare_activations": new("0.7.4", "fused_moe/api.py", hidden_states_scale_global=None),
    "fused_moe.PrimsTsConfig.prepare_weights": new(
        "0.7.4", "fused_moe/api.py", hidden_states_scale_global=None, intermediate_scale_global=None
    ),
    "fused_moe.core.trtllm_fp8_per_channel_scale_moe": _WORKSPACE,
    "fused_moe.core.trtllm_fp8_per_channel_scale_routed_moe": _WORKSPACE,
    "fused_moe.core.trtllm_mxint4_block_scale_routed_moe": _WORKSPACE,
    "fused_moe.cute_dsl.fused_moe.CuteDslMoEWrapper.__init__": new(
        "0.7.4", "fused_moe/cute_dsl/fused_moe.py", clamped_relu2_limit=None, swap_ab=False
    ),
    "fused_moe.cute_dsl.fused_moe.CuteDslMoEWrapper.run": _4OVER6,
    "fused_moe.cute_dsl_fused_moe": (
        new("0.7.4", "fused_moe/cute_dsl/fused_moe.py", clamped_relu2_limit=None, swap_ab=False),
        _4OVER6,
    ),
    "fused_moe.cute_dsl_fused_moe_nvfp4": (
        new("0.7.4", "fused_moe/cute_dsl/fused_moe.py", clamped_relu2_limit=None),
        _4OVER6,
    ),
    "fused_moe.cutlass_fused_moe": (_FUSED_FINALIZE, _4OVER6),
    "fused_moe.cutlass_fused_moe_workspace_size": _FUSED_FINALIZE,
    "fused_moe.prims_ts_fp8_per_tensor_scale_moe": _WORKSPACE,
    "fused_moe.trtllm_bf16_moe": _WORKSPACE,
    "fused_moe.trtllm_bf16_routed_moe": _WORKSPACE,
    "fused_moe.trtllm_fp4_block_scale_moe": (_WORKSPACE, _4OVER6),
    "fused_moe.trtllm_fp4_block_scale_routed_moe": (
        _WORKSPACE,
        _4OVER6,
        new("0.7.4", "fused_moe/core.py", routing_metadata=None),
    ),
    "fused_moe.trtllm_fp8_block_scale_moe": _WORKSPACE,
    "fused_moe.trtllm_fp8_block_scale_routed_moe": _WORKSPACE,
    "fused_moe.trtllm_fp8_per_tensor_scale_moe": _WORKSPACE,
    "fused_moe.trtllm_fp8_per_tensor_scale_routed_moe": _WORKSPACE,
    "fused_moe.trtllm_mxint4_block_scale_moe": _WORKSPACE,
}

"""Fused MoE before 0.7.2.post1."""

from __future__ import annotations

from ...bridges.rules import new
from ..model import Lines

LINES: Lines = {
    "fused_moe.cute_dsl_fused_moe": new(
        "0.7.2.post1",
        "fused_moe/cute_dsl/fused_moe.py",
        localized_weights=None,
        localized_streams=None,
        localized_sm_count=None,
        localized_memset_stream=None,
        localized_allow_nonlocalized=False,
        autotune_use_cuda_graph=False,
    ),
    "fused_moe.cute_dsl_fused_moe_nvfp4": new(
        "0.7.2.post1",
        "fused_moe/cute_dsl/fused_moe.py",
        localized_weights=None,
        localized_streams=None,
        localized_sm_count=None,
        localized_memset_stream=None,
        localized_allow_nonlocalized=False,
        autotune_use_cuda_graph=False,
    ),
    "fused_moe.prims_ts_fp8_per_tensor_scale_moe": new(
        "0.7.2.post1", "fused_moe/backends/prims_ts/fp8_op.py", gemm1_clamp_limit=None
    ),
    "fused_moe.trtllm_fp8_per_tensor_scale_moe": new("0.7.2.post1", "fused_moe/core.py", gemm1_clamp_limit=None),
    "fused_moe.trtllm_fp8_per_tensor_scale_routed_moe": new("0.7.2.post1", "fused_moe/core.py", gemm1_clamp_limit=None),
}

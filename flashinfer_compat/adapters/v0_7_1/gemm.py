"""Matrix products before 0.7.2."""

from __future__ import annotations

from ...bridges.rules import new, new_values
from ..model import Lines

LINES: Lines = {
    "gemm.batch_deepgemm_fp8_nt_groupwise": new("0.7.2", "gemm/gemm_base.py", backend="deepgemm"),
    "gemm.mm_fp4": new_values("0.7.2", "gemm/gemm_base.py", backend=("cake",)),
    "gemm.prepare_group_gemm_fp8_nt_groupwise_contiguous": new(
        "0.7.2", "gemm/cake_grouped_fp8_gemm.py", fill_padding=False, alignment=128
    ),
    "gemm.prepare_group_gemm_fp8_nt_groupwise_contiguous_silu_quant": new(
        "0.7.2", "gemm/cake_grouped_fp8_fused_silu_quant.py", workspace=None, group_counts=None
    ),
    "prims_ts.gemm.prepare_fp4_linear_swiglu": new("0.7.2", "prims_ts/gemm/api.py", tmem_overlap=False),
    "prims_ts.gemm.prepare_fp4_qkv_qknorm_rope": new("0.7.2", "prims_ts/gemm/api.py", tmem_overlap=False),
}

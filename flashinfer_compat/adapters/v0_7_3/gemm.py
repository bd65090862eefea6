"""Matrix products before 0.7.4."""

from __future__ import annotations

from ...bridges import pdl
from ...bridges.rules import Convert, new, new_values
from ..model import Lines

LINES: Lines = {
    "mm_nvfp4_svdquant": new_values("0.7.4", "gemm/gemm_svdquant.py", backend=("cutlass-sm120",)),
    "svdquant_linear": new_values("0.7.4", "gemm/gemm_svdquant.py", backend=("cutlass-sm120",)),
    "gemm.bmm_fp8": new("0.7.4", "gemm/gemm_base.py", batch_invariant=False),
    "gemm.gemm_fp8_nt_groupwise": new_values(
        "0.7.4",
        "gemm/gemm_base.py",
        backend=(
            "cute-dsl",
            "auto",
        ),
    ),
    "gemm.mm_bf16": (
        new("0.7.4", "gemm/gemm_base.py", batch_invariant=False),
        Convert(
            via=pdl.without,
            gives=("pdl",),
            about=("pdl=None",),
            where="pdl is None",
            unless="batch_invariant",
            note="None, which leaves it to FlashInfer, is new in 0.7.4: without",
        ),
    ),
    "gemm.mm_fp4": new("0.7.4", "gemm/gemm_base.py", batch_invariant=False),
    "gemm.mm_mxfp8": new("0.7.4", "gemm/gemm_base.py", batch_invariant=False),
    "gemm.prepare_group_gemm_fp8_nt_groupwise_contiguous_silu_quant": new(
        "0.7.4", "gemm/cake_grouped_fp8_fused_silu_quant.py", fill_padding=False
    ),
}

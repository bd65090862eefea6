"""Matrix products before 0.7.2.post1."""

from __future__ import annotations

from ...bridges.rules import new_values
from ..model import Lines

LINES: Lines = {
    "gemm.mm_fp8": new_values(
        "0.7.2.post1",
        "gemm/gemm_base.py",
        backend=(
            "cublas",
            "cudnn",
            "cutlass",
            "auto",
        ),
    ),
}

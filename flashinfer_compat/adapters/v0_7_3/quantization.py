"""Quantizers before 0.7.4."""

from __future__ import annotations

from ...bridges.rules import Default, new, new_values
from ..model import Lines

_AUTO = Default(
    parameter="backend",
    default="auto",
    note="resolves to cuda in 0.7.4 too; an error before (quantization/fp4_quantization.py)",
)

LINES: Lines = {
    "quantization.fp4_quantize": (_AUTO, new("0.7.4", "quantization/fp4_quantization.py", batch_invariant=False)),
    "quantization.fp8_quantization.per_token_group_quant_8bit": new_values(
        "0.7.4", "quantization/fp8_quantization.py", backend=("cuda",)
    ),
    "quantization.kernels.nvfp4_quantize.nvfp4_quantize_per_token_cute_dsl": new(
        "0.7.4",
        "quantization/kernels/nvfp4_quantize.py",
        valid_rows=None,
        row_limits=None,
        rows_per_group=None,
        sf_rows_per_group=None,
    ),
    "quantization.mxfp4_quantize": (_AUTO, new("0.7.4", "quantization/fp4_quantization.py", batch_invariant=False)),
    "quantization.mxfp8_grouped_quantize": new_values("0.7.4", "quantization/fp8_quantization.py", backend=("cuda",)),
    "quantization.mxfp8_quantize": (_AUTO, new("0.7.4", "quantization/fp8_quantization.py", batch_invariant=False)),
    "quantization.nvfp4_quantize": (_AUTO, new("0.7.4", "quantization/fp4_quantization.py", batch_invariant=False)),
}

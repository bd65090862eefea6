"""Quantizers before 0.7.2.post1."""

from __future__ import annotations

from ...bridges import quantization
from ...bridges.rules import Emulate, new
from ..model import Lines

LINES: Lines = {
    "quantization.fp4_quantization.block_scale_interleave": Emulate(
        adds={"out": None},
        via=quantization.into,
        takes=("result", "out"),
        gives=("result",),
        after=True,
        note="copied into it: the kernel writes there from 0.7.2.post1 on (quantization/fp4_quantization.py)",
    ),
    "quantization.kernels.nvfp4_quantize.nvfp4_quantize_cute_dsl": new(
        "0.7.2.post1", "quantization/kernels/nvfp4_quantize.py", out=None
    ),
}

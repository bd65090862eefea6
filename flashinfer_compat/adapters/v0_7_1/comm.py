"""Communication before 0.7.2."""

from __future__ import annotations

from ...bridges.rules import RefuseWhen, new
from ..model import Lines

_FP32_TWO_SHOT = RefuseWhen(
    when=lambda use_fp32_lamport: use_fp32_lamport,
    about=("use_fp32_lamport=True",),
    since="0.7.2",
    instead="Reduce in bfloat16 or float16.",
    note="the two-shot kernel writes twice what 0.7.1 allocates for fp32 (comm/trtllm_ar.py)",
)

LINES: Lines = {
    "comm.prepare_all_gather_matmul": new("0.7.2", "comm/all_gather_matmul/all_gather_matmul.py", max_rows=None),
    "comm.trtllm_create_ipc_workspace_for_all_reduce_fusion": _FP32_TWO_SHOT,
}

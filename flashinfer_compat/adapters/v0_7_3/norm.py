"""Norms before 0.7.4."""

from __future__ import annotations

from ...bridges.rules import AnswerNo, Ignore, new
from ..model import Lines

_BACKENDS = "a choice of backends is new in 0.7.4 (norm/__init__.py)"
_PDL = Ignore(adds={"enable_pdl": True}, note="the answer depends on it from 0.7.4 on alone (norm/__init__.py)")

LINES: Lines = {
    "cake_rmsnorm_train.cake_rmsnorm_train_backward_workspace": new(
        "0.7.4", "cake_rmsnorm_train_backend/__init__.py", deterministic=True
    ),
    "cake_rmsnorm_train.cake_rmsnorm_train_backward_workspace_bytes": new(
        "0.7.4", "cake_rmsnorm_train_backend/__init__.py", deterministic=True
    ),
    "cake_rmsnorm_train.cake_rmsnorm_train_forward": new("0.7.4", "cake_rmsnorm_train.py", deterministic=True),
    "cake_rmsnorm_train.is_cake_rmsnorm_train_supported": new(
        "0.7.4", "cake_rmsnorm_train_backend/__init__.py", deterministic=True
    ),
    "cake_rmsnorm_train.route_key": new("0.7.4", "cake_rmsnorm_train_backend/cake_jit.py", w_dtype="bf16"),
    "norm.gated_residual_next_rmsnorm": new("0.7.4", "norm/__init__.py", backend="auto"),
    "norm.gated_residual_rmsnorm": new("0.7.4", "norm/__init__.py", backend="auto"),
    "norm.layernorm_quant": Ignore(adds={"enable_pdl": None}, note="only 0.7.4 can launch it so (norm/__init__.py)"),
    "norm.rmsnorm_sigmoid_gate": new("0.7.4", "norm/__init__.py", backend="auto"),
    "norm.supports_gated_residual_next_rmsnorm": AnswerNo(adds={"backend": "auto"}, note=_BACKENDS),
    "norm.supports_gated_residual_rmsnorm": (AnswerNo(adds={"backend": "auto"}, note=_BACKENDS), _PDL),
    "norm.supports_rmsnorm_sigmoid_gate": (AnswerNo(adds={"backend": "auto"}, note=_BACKENDS), _PDL),
}

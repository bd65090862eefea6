"""Norms before 0.7.2.post1."""

from __future__ import annotations

from ...bridges.names import AnsweredNo
from ..model import Lines

LINES: Lines = {
    "norm.supports_gated_residual_rmsnorm": AnsweredNo(note="the kernel is new in 0.7.2.post1 (norm/__init__.py)"),
    "norm.supports_gated_residual_next_rmsnorm": AnsweredNo(note="the kernel is new in 0.7.2.post1 (norm/__init__.py)"),
    "norm.supports_rmsnorm_sigmoid_gate": AnsweredNo(note="the kernel is new in 0.7.2.post1 (norm/__init__.py)"),
}

"""What the cases run on: FlashInfer on the GPU, or the reference where there is no FlashInfer or no GPU."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

import torch

from .. import namespace
from ..features import report


@dataclass(frozen=True)
class Setting:
    """`because` says why the reference is in FlashInfer's place; empty where it is not."""

    device: torch.device
    because: str

    @property
    def facts(self) -> dict[str, Any]:
        """The backend, the releases and the machine that results belong to."""
        told = report()
        on_gpu = self.device.type == "cuda"
        return {
            "backend": told["backend"],
            "because": self.because,
            "flashinfer": told["flashinfer"],
            "adapter": told["adapter"],
            "inferred": told["inferred"],
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(self.device) if on_gpu else platform.machine(),
        }

    def __str__(self) -> str:
        facts = self.facts
        if self.because:
            return (
                f"The reference in plain PyTorch on the CPU, {self.because}: float32 against float64. "
                "This says nothing of FlashInfer."
            )
        inferred = ", inferred" if facts["inferred"] else ""
        return (
            f"FlashInfer {facts['flashinfer']} (adapter {facts['adapter']}{inferred}) on {facts['device']}, "
            f"torch {facts['torch']}"
        )


def settle() -> Setting:
    """Choose, before the first of FlashInfer's names is read; FlashInfer with a GPU is what is run where both are."""
    because = _because()
    if not because:
        return Setting(torch.device("cuda", torch.cuda.current_device()), "")
    namespace.use_reference()
    return Setting(torch.device("cpu"), because)


def _because() -> str:
    installed = namespace.selected.installed
    if namespace.selected.reference:
        return "as FLASHINFER_COMPAT_BACKEND or use_reference() asks for"
    if installed is None:
        return "for FlashInfer is not installed"
    if not torch.cuda.is_available():
        return f"for FlashInfer {installed} is installed and there is no GPU"
    return ""

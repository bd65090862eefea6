"""Where a case's functions come from: the facade, FlashInfer itself, or the reference."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch

_ROUNDED = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Library:
    """Something that has FlashInfer's modules, by FlashInfer's names, below `root`: ``library.norm.rmsnorm``."""

    root: str

    def __getattr__(self, module: str) -> Any:
        if module.startswith("__"):
            raise AttributeError(module)  # what copy and pickle ask for is no module
        return importlib.import_module(f"{self.root}.{module}")

    @property
    def unrounded(self) -> dict[str, torch.dtype]:
        """What to plan with so that the output is as exact as this library can: the reference's in float64."""
        return {"o_data_type": torch.float64} if self is REFERENCE else {}

    def widened(self, argument: Any) -> Any:
        """A 16-bit tensor in float64 for the reference, whose result then is not rounded; all else as it is."""
        if self is REFERENCE and isinstance(argument, torch.Tensor) and argument.dtype in _ROUNDED:
            return argument.double()
        return argument


FACADE = Library("flashinfer_compat")
NATIVE = Library("flashinfer")
REFERENCE = Library("flashinfer_compat.reference")

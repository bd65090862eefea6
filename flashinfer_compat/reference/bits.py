"""Bits in bytes, as custom masks are kept."""

from __future__ import annotations

import torch

from ..errors import InvalidArgument


def unpacked_bits(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """The first `bits` bools of `packed`, uint8 in the order "little"."""
    return (packed.unsqueeze(1) & powers("little", packed.device)).flatten()[:bits] != 0


def powers(bitorder: str, device: torch.device) -> torch.Tensor:
    """What each of eight bits is worth in a byte, uint8; `bitorder` is "big" or "little"."""
    if bitorder not in ("big", "little"):
        raise InvalidArgument(f"bitorder is {bitorder!r}; it must be 'big' or 'little'")
    exponents = range(8) if bitorder == "little" else range(7, -1, -1)
    return torch.tensor([1 << exponent for exponent in exponents], dtype=torch.uint8, device=device)

"""`flashinfer.quantization`: bits packed into bytes, as custom masks are."""

from __future__ import annotations

import torch

from .bits import powers


def packbits(x: torch.Tensor, bitorder: str = "big") -> torch.Tensor:
    """`x` (n,), bools or what is read as such, eight to a byte: uint8 ((n + 7) // 8,). `bitorder`: big or little."""
    worth = powers(bitorder, x.device)
    padded = torch.nn.functional.pad(x.to(torch.bool).to(torch.uint8), (0, -x.numel() % 8))
    return (padded.view(-1, 8) * worth).sum(dim=1, dtype=torch.uint8)


def segment_packbits(x: torch.Tensor, indptr: torch.Tensor, bitorder: str = "big") -> tuple[torch.Tensor, torch.Tensor]:
    """Each segment ``x[indptr[i] : indptr[i + 1]]`` packed from a byte of its own on, and the new indptr, int32."""
    packed = [packbits(part, bitorder) for part in x.split(indptr.diff().tolist())]
    lengths = (indptr.diff() + 7) // 8
    packed_indptr = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    return torch.cat(packed) if packed else x.new_empty(0, dtype=torch.uint8), packed_indptr

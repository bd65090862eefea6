"""Rotary embeddings: the angles, and entries turned by them."""

from __future__ import annotations

import torch


def frequencies(dim: int, scale: float, theta: float, device: torch.device | str) -> torch.Tensor:
    """The angle per position of each of the `dim` / 2 pairs, float64."""
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim
    return theta**-exponents / scale


def rotated(x: torch.Tensor, positions: torch.Tensor, inverse: torch.Tensor, interleave: bool = False) -> torch.Tensor:
    """`x` (rows, heads, dim) turned by ``positions * inverse``, (rows,) and (rotary dim / 2,)."""
    angles = positions.double().unsqueeze(-1) * inverse
    return turned(x, angles.cos().to(x.dtype).unsqueeze(1), angles.sin().to(x.dtype).unsqueeze(1), interleave)


def turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, interleave: bool) -> torch.Tensor:
    """The first entries of each head turned, as many as there are cosines and sines."""
    rotary_dim = 2 * cosine.size(-1)
    turning = x[..., :rotary_dim]
    one, other = (turning[..., ::2], turning[..., 1::2]) if interleave else turning.chunk(2, dim=-1)
    pair = one * cosine - other * sine, other * cosine + one * sine
    done = torch.stack(pair, dim=-1).flatten(-2) if interleave else torch.cat(pair, dim=-1)
    return torch.cat([done, x[..., rotary_dim:]], dim=-1)

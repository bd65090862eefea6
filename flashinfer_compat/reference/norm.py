"""`flashinfer.norm`: root-mean-square and layer normalisation, computed wide and rounded once."""

from __future__ import annotations

import torch

from ..errors import InvalidArgument
from .precision import wide


def rmsnorm(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    """``input / rms(input) * weight``: `input` (rows, hidden) or (rows, heads, hidden), `weight` (hidden,)."""
    return _written(_normalised(wide(input), eps) * wide(weight), input, out)


def gemma_rmsnorm(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    """`rmsnorm` with ``1 + weight`` in place of `weight`."""
    return _written(_normalised(wide(input), eps) * (1 + wide(weight)), input, out)


def fused_add_rmsnorm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """`residual` becomes ``residual + input``, and `input` the norm of that sum as it was before it was rounded."""
    summed = _added(input, residual)
    input.copy_(_normalised(summed, eps) * wide(weight))


def gemma_fused_add_rmsnorm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """`fused_add_rmsnorm` with ``1 + weight`` in place of `weight`."""
    summed = _added(input, residual)
    input.copy_(_normalised(summed, eps) * (1 + wide(weight)))


def rmsnorm_quant(
    out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    scale: float | torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """`rmsnorm` over `scale`, into `out` of float8_e4m3fn or float8_e5m2; what is too large becomes the largest."""
    _quantised(_normalised(wide(input), eps) * wide(weight), scale, out)


def fused_add_rmsnorm_quant(
    out: torch.Tensor,
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    scale: float | torch.Tensor,
    eps: float = 1e-6,
    enable_pdl: bool | None = None,
) -> None:
    """`residual` becomes ``residual + input``, and `out` the norm of that sum over `scale`; `input` stays."""
    summed = _added(input, residual)
    _quantised(_normalised(summed, eps) * wide(weight), scale, out)


def layernorm(input: torch.Tensor, gemma: torch.Tensor, beta: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """`input` (rows, hidden), bfloat16, less its mean over its deviation, times `gemma` plus `beta` (hidden,), fp32."""
    centred = wide(input) - wide(input).mean(dim=-1, keepdim=True)
    return _written(_normalised(centred, eps) * wide(gemma) + wide(beta), input, None)


def _normalised(values: torch.Tensor, eps: float) -> torch.Tensor:
    return values * torch.rsqrt(values.square().mean(dim=-1, keepdim=True) + eps)


def _added(input: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    summed = wide(input) + wide(residual)
    residual.copy_(summed)
    return summed


def _written(values: torch.Tensor, input: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    if out is None:
        return values.to(input.dtype)
    if out.shape != input.shape:
        raise InvalidArgument(f"out has shape {tuple(out.shape)}; it must be {tuple(input.shape)}")
    return out.copy_(values)


def _quantised(values: torch.Tensor, scale: float | torch.Tensor, out: torch.Tensor) -> None:
    if out.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2):
        raise InvalidArgument(f"out is {out.dtype}; it must be float8_e4m3fn or float8_e5m2")
    largest = torch.finfo(out.dtype).max
    out.copy_((values / scale).clamp(-largest, largest).to(out.dtype))

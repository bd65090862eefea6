"""How far sampled tokens may be from the distribution that they are drawn from."""

from __future__ import annotations

import math

import torch


def total_variation(samples: torch.Tensor, exact: torch.Tensor) -> float:
    """Half the L1 distance of the samples' frequencies (any shape) to `exact` (vocabulary,)."""
    counts = torch.bincount(samples.flatten().long(), minlength=len(exact)).double()
    return float((counts / counts.sum() - exact.double().to(counts.device)).abs().sum() / 2)


def bound(draws: int, support: int, failure: float = 1e-9) -> float:
    """What the total-variation distance of right samples exceeds with probability `failure` at most.

    Its mean is below sqrt(support / draws) / 2, and one draw changes it by at most 1 / draws (McDiarmid).
    """
    return math.sqrt(support / draws) / 2 + math.sqrt(math.log(1 / failure) / (2 * draws))

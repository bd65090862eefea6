"""Random inputs: the same numbers for one seed on every device, release and PyTorch."""

from __future__ import annotations

from functools import cache

import torch


class Draw:
    """Tensors on `device`, drawn on the host one after another."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*shape, generator=self._generator).to(self.device, dtype)

    def uniform(self, *shape: int) -> torch.Tensor:
        """float32, in [0, 1)."""
        return torch.rand(*shape, generator=self._generator).to(self.device)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """int32, from `low` to below `high`."""
        return torch.randint(low, high, shape, generator=self._generator, dtype=torch.int32).to(self.device)

    def permutation(self, count: int) -> torch.Tensor:
        """int32, (count,)."""
        return torch.randperm(count, generator=self._generator).to(self.device, torch.int32)

    def generator(self) -> torch.Generator:
        """One on the device, with a seed of its own."""
        seed = int(torch.randint(1 << 62, (), generator=self._generator))
        return torch.Generator(self.device).manual_seed(seed)

    @property
    def workspace(self) -> torch.Tensor:
        """A float workspace for the largest plan here; no two calls may use it at once."""
        return _workspace(self.device)


@cache
def _workspace(device: torch.device) -> torch.Tensor:
    # The reference reads of a workspace only where it lies.
    return torch.empty(384 << 20 if device.type == "cuda" else 1024, dtype=torch.uint8, device=device)

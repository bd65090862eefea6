"""The contract in plain PyTorch, on any device: for machines without FlashInfer, and the oracle of the tests.

`import flashinfer_compat as flashinfer` gives it, by FlashInfer's own names, after `flashinfer_compat.use_reference` or
with ``FLASHINFER_COMPAT_BACKEND=reference`` in the environment. Its modules can be imported by themselves too.
"""

from .precision import accumulate_in

__all__ = ["accumulate_in"]

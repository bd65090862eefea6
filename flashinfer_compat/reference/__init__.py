"""The contract in plain PyTorch, on any device: for machines without FlashInfer, and the oracle of the GPU tests."""

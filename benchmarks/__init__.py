"""What the facade costs beside FlashInfer's own calls, as ratios within one run: ``python -m benchmarks --help``."""

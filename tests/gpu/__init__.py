"""What only a CUDA device can show: kernels against fp32, captured graphs, bits. Everything is pinned to FA2."""

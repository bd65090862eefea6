"""``flashinfer-compat selftest``: the facade's features run on this machine, against the contract in plain PyTorch."""

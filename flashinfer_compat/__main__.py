"""``python -m flashinfer_compat``: the command line."""

from .cli import main

main(prog_name="flashinfer-compat")

"""``python -m flashinfer_compat``, and ``flashinfer-compat``: the command line, or what it needs to be installed."""

import sys

try:
    from .cli import main
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("click", "rich"):
        raise
    sys.exit(f"The command line needs {missing}: pip install 'flashinfer-compat[cli]'")

if __name__ == "__main__":
    main(prog_name="flashinfer-compat")

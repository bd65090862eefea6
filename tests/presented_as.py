"""Run a Python command with the installed FlashInfer presented as another release: its real code, another version.

    python tests/presented_as.py 0.7.3 -m pytest

0.7.3 is not on the package index; its adapter is tested against the code of 0.7.4 in this way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main(version: str, *command: str) -> int:
    with tempfile.TemporaryDirectory() as directory:
        metadata = Path(directory) / f"flashinfer_python-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: flashinfer-python\nVersion: {version}\n")
        path = os.pathsep.join(filter(None, (directory, os.environ.get("PYTHONPATH"))))
        return subprocess.run([sys.executable, *command], env={**os.environ, "PYTHONPATH": path}).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""sglang's own FlashInfer code, unmodified, under `patch()`: numbers from a real GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import engines

from .reference import TOLERANCE

pytestmark = pytest.mark.gpu
TREE = Path(__file__).parents[2]
SOURCE = engines.source_folder("sglang==0.5.23")


@pytest.mark.skipif(not SOURCE.exists(), reason="sglang's source is fetched by tests/engines, from a package index")
def test_each_replay_that_sglangs_fast_plan_prepares_is_right() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "tests/engines/scenarios.py", "sglang_fast_plan_runs", str(SOURCE)],
        cwd=TREE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TREE), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrapper"] == "flashinfer_compat.prefill"
    assert len(found["errors"]) == 12
    assert max(found["errors"]) < TOLERANCE, found["errors"]

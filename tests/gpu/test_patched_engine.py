"""Engines' own FlashInfer code, unmodified, under `patch()`: numbers from a real GPU."""

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


@pytest.mark.parametrize(
    ("engine", "scenario", "answers"),
    [
        ("sglang==0.5.23", "sglang_fast_plan_runs", 12),
        ("sglang==0.5.23", "sglang_dispatcher_runs", 4),
        ("vllm==0.33.0", "vllm_one_sided_runs", 4),
    ],
)
def test_an_engines_own_code_gets_right_numbers(engine: str, scenario: str, answers: int) -> None:
    source = engines.source_folder(engine)
    if not source.exists():
        pytest.skip("the engine's source is fetched by tests/engines, from a package index")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "tests/engines/scenarios.py", scenario, str(source)],
        cwd=TREE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TREE), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert found["facade's"]
    assert len(found["errors"]) == answers
    assert max(found["errors"]) < TOLERANCE, found["errors"]

"""Published engines, unmodified, under `patch()` on the installed FlashInfer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import flashinfer_compat

from .conftest import ENGINES, engine_source

pytest.importorskip("flashinfer", reason="engines run on FlashInfer")

HERE = Path(__file__).parent
TREE = str(Path(flashinfer_compat.__path__[0]).parent)


def run(script: str, *arguments: str) -> Any:
    path = os.pathsep.join(filter(None, (TREE, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / script), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def release() -> str:
    return str(flashinfer_compat.report()["adapter"])


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_pinned_release_had_is_there_or_said_to_be_missing(
    engine: str, release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes: dict[str, str] = run("resolve.py", str(engine_source(engine)), ENGINES[engine][1])
    counted = Counter(outcome.partition(":")[0] for outcome in outcomes.values())
    with capsys.disabled():
        print(f"\n{engine} {ENGINES[engine][0]} on FlashInfer {release}: {dict(counted)}")
    assert {name: outcome for name, outcome in outcomes.items() if outcome.startswith("broken")} == {}
    assert counted["resolved"] > 150


def test_sglangs_fast_plan_sends_what_the_planner_takes(sglang: Path, release: str) -> None:
    arguments = 21 if release in ("0.7.3", "0.7.4") else 20
    found = run("scenarios.py", "sglang_fast_plan", str(sglang))
    assert found == {"planned": arguments, "fast": arguments, "differing": []}


def test_sglangs_sampler_samples_through_the_facade(sglang: Path) -> None:
    found = run("scenarios.py", "sglang_sampler", str(sglang))
    assert found == {"min_p_sampling_from_probs": True, "top_k_top_p_sampling_from_probs": True}


def test_sglangs_dispatcher_builds_and_dispatches(sglang: Path) -> None:
    """Written for comm.MoeAlltoAll, which 0.7.3 removed: there it would be silently off."""
    found = run("scenarios.py", "sglang_dispatcher", str(sglang))
    assert found == {
        "on": True,
        "same class": True,
        "workspaces": True,
        "received": [6, 32],
        "launched": ["dispatch", "combine"],
    }


def test_what_vllm_gates_on_is_there(vllm: Path) -> None:
    """By vLLM's own functions: of 0.7.3 and later the two-sided, before 0.7.2 the one-sided manager would be off."""
    found = run("scenarios.py", "vllm_gates", str(vllm))
    assert {gate for gate, there in found.items() if not there} == set()
    assert len(found) > 20


def test_vllms_one_sided_class_dispatches_where_the_keyword_is_called_otherwise(vllm: Path, release: str) -> None:
    if release not in ("0.7.3", "0.7.4"):
        pytest.skip("this release's dispatch takes max_tokens_per_rank, or is the facade's own")
    found = run("scenarios.py", "vllm_one_sided", str(vllm))
    assert found == {"received": [8, 16], "sizes": [4, 4]}

"""The seams that let a CPU plan for real: a recording fake where FlashInfer gets its JIT module, and pinned memory."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flashinfer
import pytest
import torch

import flashinfer_compat
from flashinfer_compat.bridges import planner

PRESENTED_AS = Path(__file__).parents[1] / "presented_as.py"
#: A PrefillPlanInfo as the planner returns it: padded batch size, …, query tile at 3, …, split-KV at 14.
PLAN_INFO = [264, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]


class RecordingModule(SimpleNamespace):
    """Stands for a compiled FA2 module: it records what would reach the planner, and checks the argument count."""

    def __init__(self, arguments: int) -> None:
        self.arguments = arguments
        self.plans: list[tuple[Any, ...]] = []
        self.sizes: list[tuple[Any, ...]] = []
        self.runs: list[tuple[Any, ...]] = []
        self.plan_info = list(PLAN_INFO)

    def plan(self, *args: Any) -> list[int]:
        # As the TVM-FFI export does: exactly as many as it declares (FA3 declares 16).
        if len(args) not in (self.arguments, 16):
            raise TypeError(f"Expected {self.arguments} but got {len(args)} arguments")
        self.plans.append(args)
        plan_info = list(self.plan_info)
        plan_info[3] = 16 if len(args) > 19 and args[19] else 64
        plan_info[14] = int(not args[17]) if len(args) > 17 else 1
        return plan_info

    def workspace_size(self, *args: Any) -> tuple[int, int]:
        self.sizes.append(args)
        return 1024, 2048

    def paged_run(self, *args: Any) -> None:
        self.runs.append(args)

    def ragged_run(self, *args: Any) -> None:
        self.runs.append(args)


@pytest.fixture
def release() -> str:
    version = flashinfer_compat.report()["adapter"]
    assert isinstance(version, str)
    return version


@pytest.fixture
def planner_arguments(release: str) -> int:
    """Stated here and not asked of the package: 20 up to 0.7.2.post1, 21 from 0.7.3."""
    return 21 if release in ("0.7.3", "0.7.4") else 20


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, planner_arguments: int) -> RecordingModule:
    """The recording module, in place of each FA2 module that FlashInfer would compile; CPU tensors count as pinned."""
    recording = RecordingModule(planner_arguments)
    for owner in (flashinfer.prefill, flashinfer.decode):
        monkeypatch.setattr(owner, "get_batch_prefill_module", lambda *args: recording)
    empty = torch.empty

    def pageable_empty(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        return empty(*args, **kwargs)

    monkeypatch.setattr(torch, "empty", pageable_empty)
    # A torch built for CUDA raises here where there is no driver.
    monkeypatch.setattr(planner, "is_capturing", lambda: False)
    return recording


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A callable that runs a wrapper's module as CUDA-graph capture does."""

    def capture(wrapper: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(planner, "is_capturing", lambda: True)
            wrapper._cached_module.paged_run()

    return capture


@pytest.fixture
def fresh() -> Callable[..., Any]:
    """Runs a function of a test module in a new interpreter: ``fresh(function, *arguments, presented_as="0.7.3")``.

    The function imports what it needs, and returns what JSON can carry.
    """

    def run(function: Callable[..., Any], *arguments: Any, presented_as: str | None = None) -> Any:
        source = textwrap.dedent(inspect.getsource(function))
        call = f"print('\\n' + json.dumps({function.__name__}(*{arguments!r})))"
        script = f"from __future__ import annotations\nimport json\n{source}\n{call}"
        command = [sys.executable, "-W", "ignore", "-c", script]
        if presented_as is not None:
            command = [sys.executable, str(PRESENTED_AS), presented_as, *command[1:]]
        tree = Path(flashinfer_compat.__path__[0]).parent
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(tree))))
        process = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr[-4000:]
        return json.loads(process.stdout.splitlines()[-1])

    return run

"""When the facade runs on the reference: asked for, and never by itself. Each case is an interpreter of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import flashinfer_compat

pytest.importorskip("torch", reason="the reference is written in PyTorch")

ROOT = Path(flashinfer_compat.__path__[0]).parent
HAS_FLASHINFER = find_spec("flashinfer") is not None
USE = "import flashinfer_compat as flashinfer; flashinfer.use_reference()\n"
#: Python code that takes a GPU for given; FlashInfer and torch are as they are.
WITH_A_GPU = "import torch; torch.cuda.is_available = lambda: True\n"


def run(script: str, **environ: str) -> Any:
    """What `script` prints as JSON."""
    variables = {name: value for name, value in os.environ.items() if name != "FLASHINFER_COMPAT_BACKEND"}
    process = subprocess.run(
        [sys.executable, "-W", "always", "-c", script],
        cwd=ROOT,
        env={**variables, **environ},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


BOTH_WAYS = pytest.mark.parametrize(
    ("start", "environ"),
    [("import flashinfer_compat as flashinfer\n", {"FLASHINFER_COMPAT_BACKEND": "reference"}), (USE, {})],
    ids=["environment", "use_reference()"],
)


@BOTH_WAYS
def test_the_names_are_the_reference(start: str, environ: dict[str, str]) -> None:
    made, same, exported, report, version, imported = run(
        start
        + """
import json, sys
from flashinfer_compat.decode import BatchDecodeWithPagedKVCacheWrapper
import flashinfer_compat.mla
wrapper = flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper
print(json.dumps([
    [base.__module__ for base in wrapper.__mro__],
    wrapper is flashinfer.BatchPrefillWithPagedKVCacheWrapper is flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper,
    [hasattr(flashinfer, name) for name in ("rmsnorm", "merge_state", "top_k_sampling_from_probs", "MLAPlanMetadata")],
    flashinfer.report(),
    flashinfer.__version__,
    "flashinfer" in sys.modules,
]))
""",
        **environ,
    )
    assert made[0] == "flashinfer_compat.reference.paged_prefill"
    assert same
    assert exported == [True, True, True, False], "what FlashInfer's package exports, and no more"
    assert (report["backend"], report["adapter"]) == ("reference", None)
    assert (report["flashinfer"] is not None) == HAS_FLASHINFER
    assert report["features"]["prefill.uniform_q_len"] == "ignored"
    assert report["features"]["prefill.max_total_num_rows"] == "emulated"
    assert report["features"]["sampling.same_tokens"] == "unavailable"
    assert version == "0.7.4+reference"
    assert not imported


def test_it_computes() -> None:
    assert run(
        USE
        + """
import json, torch
x = torch.tensor([[3.0, 4.0]])
print(json.dumps((flashinfer.rmsnorm(x, torch.ones(2), eps=0.0) * 12.5 ** 0.5).tolist()))
"""
    ) == [pytest.approx([3.0, 4.0])]


@BOTH_WAYS
def test_what_it_lacks_is_told(start: str, environ: dict[str, str]) -> None:
    messages = run(
        start
        + """
import json
told = []
for attempt in (
    lambda: flashinfer.comm.trtllm_allreduce_fusion,
    lambda: flashinfer.comm.no_such_name,
    lambda: exec("from flashinfer_compat.gemm import mm_fp4"),
    lambda: exec("import flashinfer_compat.no_such_module"),
    lambda: flashinfer.require("gemm.batch_invariant"),
    lambda: flashinfer.supports("no.such"),
    lambda: flashinfer.top_k_sampling_from_probs(None, None, top_q=1),
):
    try:
        attempt()
    except Exception as error:
        told.append([type(error).__mro__[-3].__name__, type(error).__name__, str(error)])
print(json.dumps(told))
""",
        **environ,
    )
    assert [name for _, name, _ in messages] == [
        "FeatureUnavailable", "FeatureUnavailable", "MissingModule", "MissingModule", "FeatureUnavailable",
        "CompatError", "TypeError",
    ]  # fmt: skip
    texts = [text for _, _, text in messages]
    assert texts[0].startswith("flashinfer.comm.trtllm_allreduce_fusion: FlashInfer 0.7.4 has it, the reference")
    assert "has no flashinfer.comm.no_such_name" in texts[1]
    assert "flashinfer.gemm.mm_fp4" in texts[2]
    assert "no_such_module" in texts[3]
    assert "gemm.batch_invariant: unavailable on the reference" in texts[4]


def test_the_facades_checks_are_the_same() -> None:
    assert run(USE + """
import json, torch
told = []
for attempt in (
    lambda: flashinfer.top_k_sampling_from_probs(torch.rand(2, 4), 1 << 40),
    lambda: flashinfer.top_p_sampling_from_probs(torch.rand(2, 4), 1.5),
    lambda: flashinfer.sampling_from_probs(torch.rand(2, 4), seed=3),
    lambda: flashinfer.sampling_from_probs(torch.rand(4)),
):
    try:
        attempt()
    except flashinfer.InvalidArgument as error:
        told.append(str(error).partition(";")[0])
print(json.dumps(told))
""") == [
        "top_k is 1099511627776", "top_p is 1.5",
        "seed without the other: FlashInfer would draw both. Pass both, or a generator.",
        "The distributions have shape (4,) and torch.float32",
    ]  # fmt: skip


def test_expert_parallelism() -> None:
    (rows, name), told = run(
        USE
        + """
import json
import torch
from flashinfer_compat.moe_ep import BootstrapConfig, MoEEpCommParams, NVLinkOneSidedConfig, create_communication
made = create_communication(BootstrapConfig(1, 0), MoEEpCommParams(4, 2, 8, 32), NVLinkOneSidedConfig())
hidden, ids = torch.ones(3, 32, dtype=torch.bfloat16), torch.tensor([[0, 1], [2, 3], [1, 2]], dtype=torch.int32)
received = made.dispatch(hidden, ids, torch.full((3, 2), 0.5), runtime_max_tokens_per_rank=3)
rows = made.combine(received.hidden_states * 2).float().sum(1).tolist()
try:
    flashinfer.comm.MoeAlltoAll
except AttributeError as error:
    told = str(error)
print(json.dumps([[rows, flashinfer.moe_ep.create_communication.__module__], told]))
"""
    )
    assert rows == [64.0] * 3
    assert name == "flashinfer_compat.reference.expert_parallel"
    assert "import it from flashinfer_compat.reference.expert_parallel" in told


def test_assigned_names_stay() -> None:
    assert run(
        USE
        + """
import json
own = lambda *arguments: "own"
before = flashinfer.norm.rmsnorm
flashinfer.norm.rmsnorm = own
held = flashinfer.norm.rmsnorm is own
flashinfer.norm.rmsnorm = before
print(json.dumps([held, flashinfer.norm.rmsnorm is before]))
"""
    ) == [True, True]


def test_another_value_of_the_variable() -> None:
    assert "must be 'flashinfer' or 'reference'" in run(
        """
import json
try:
    import flashinfer_compat
except Exception as error:
    print(json.dumps(str(error)))
""",
        FLASHINFER_COMPAT_BACKEND="torch",
    )


@pytest.mark.parametrize("backend", ["", "flashinfer"])
def test_it_is_never_taken_by_itself(backend: str) -> None:
    script = """
import json, sys, flashinfer_compat
report = flashinfer_compat.report()
print(json.dumps([report["backend"], "flashinfer_compat.reference" in sys.modules]))
"""
    expected = ["flashinfer" if HAS_FLASHINFER else None, False]
    assert run(script, FLASHINFER_COMPAT_BACKEND=backend) == expected


def test_importing_it_is_importing_nothing() -> None:
    script = """
import json, sys, flashinfer_compat
before = sorted(name for name in sys.modules if name.partition(".")[0] in ("torch", "flashinfer"))
print(json.dumps(before + [name for name in sys.modules if name.startswith("flashinfer_compat.reference")]))
"""
    assert run(script, FLASHINFER_COMPAT_BACKEND="reference") == []
    assert run(script) == []


WARNINGS = """
import json, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name in ("rmsnorm", "merge_state", "rmsnorm"):
        getattr(flashinfer, name)
print(json.dumps([str(one.message) for one in caught if issubclass(one.category, flashinfer.CompatWarning)]))
"""


def test_it_says_once_that_a_gpu_and_flashinfer_are_there() -> None:
    told = run(WITH_A_GPU + USE + WARNINGS)
    assert len(told) == (1 if HAS_FLASHINFER else 0)
    assert not told or told[0].startswith("the reference in plain PyTorch is in the place of FlashInfer")


def test_without_a_gpu_it_says_nothing() -> None:
    assert run("import torch; torch.cuda.is_available = lambda: False\n" + USE + WARNINGS) == []


@pytest.mark.skipif(not HAS_FLASHINFER, reason="needs names of FlashInfer's that were read")
def test_too_late() -> None:
    assert "too late" in run("""
import json, flashinfer_compat
flashinfer_compat.norm.rmsnorm
try:
    flashinfer_compat.use_reference()
except flashinfer_compat.CompatError as error:
    print(json.dumps(str(error)))
""")

"""Error texts as people paste them -> cause, releases, remedy: most as wheels and nvcc printed them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

testing = pytest.importorskip(
    "click.testing", reason="the command line is an extra: pip install flashinfer-compat[cli]"
)

from flashinfer_compat.cli import main  # noqa: E402
from flashinfer_compat.doctor import tables  # noqa: E402
from flashinfer_compat.doctor.explain import explained  # noqa: E402

PLAN = "BatchPrefillWithPagedKVCacheWrapper.plan()"
NVCC_ERROR = 'no instance of function template "flashinfer::sampling::DeviceSamplingFromProb" matches the argument list'
FACADE = "import flashinfer_compat as flashinfer"
NVCC = f"""\
verify.cu(6): error: {NVCC_ERROR}
            argument types are: (int, int, lambda [](float)->bool, float, flashinfer::vec_t<float, 4UL>, float, S *)
"""

#: Text, a part of the releases, a part of the remedy.
KNOWN = [
    (
        f"TypeError: {PLAN} got an unexpected keyword argument 'uniform_q_len'",
        "taken by 0.7.2.post1, 0.7.3 (inferred), 0.7.4;",
        f"{FACADE} (emulated",
    ),
    (
        f"TypeError: {PLAN} got an unexpected keyword argument 'use_token_head_sf'",
        "taken by 0.7.4;",
        "Needs FlashInfer 0.7.4",
    ),
    (
        f"TypeError: {PLAN} got an unexpected keyword argument 'uniform_q_length'",
        "taken by no supported release",
        "Did you mean uniform_q_len?",
    ),
    (
        f"TypeError: {PLAN} missing 2 required positional arguments: 'head_dim_qk', and 'page_size'",
        "head_dim_qk is required by 0.7.1, 0.7.2, 0.7.2.post1, 0.7.3 (inferred), 0.7.4",
        "Pass head_dim_qk by keyword",
    ),
    (
        "TypeError: BatchPrefillWithPagedKVCacheWrapper.workspace_size() takes from 8 to 35 positional arguments "
        "but 99 were given",
        "99 are taken by no supported release",
        "by keyword",
    ),
    (
        "ImportError: cannot import name 'MoeAlltoAll' from 'flashinfer.comm' (/site/flashinfer/comm/__init__.py)",
        "exists in 0.7.1, 0.7.2, 0.7.2.post1",
        "",
    ),
    (
        "ImportError: cannot import name '_get_trtllm_gen_multi_ctas_kv_counter_buffer' from 'flashinfer.mla._core'",
        "exists in 0.7.1, 0.7.2, 0.7.2.post1",
        "allocate_multi_ctas_kv_counters",
    ),
    (
        "AttributeError: module 'flashinfer.prefill' has no attribute 'single_prefill_with_kvcache'",
        "exists in no supported release",
        "Did you mean flashinfer.prefill.single_prefill_with_kv_cache?",
    ),
    (
        "AttributeError: 'BatchPrefillWithPagedKVCacheWrapper' object has no attribute 'nothing_here'",
        "exists in no supported release",
        "Check the name.",
    ),
    (
        "ModuleNotFoundError: No module named 'flashinfer.comm.trtllm_moe_alltoall'",
        "exists in 0.7.1, 0.7.2, 0.7.2.post1",
        "",
    ),
    ("ModuleNotFoundError: No module named 'flashinfer'", "", "pip install flashinfer-python==0.7.4"),
    (
        "TypeError: Mismatched number of arguments when calling: `plan(0: Tensor, 1: Tensor) -> Array<int>`. "
        "Expected 21 but got 20 arguments",
        "batch_prefill_jit_binding.cu:plan takes 20 in 0.7.1, 0.7.2, 0.7.2.post1; 21 in 0.7.3 (inferred), 0.7.4",
        "raw_fa2_plan",
    ),
    (
        "TypeError: Mismatched number of arguments when calling: `ffi.String(0: str) -> str`. "
        "Expected 1 but got 3 arguments",
        "no recorded release changed such a function",
        "flashinfer-compat doctor",
    ),
    (
        "RuntimeError: flashinfer::plan() is missing value for argument '_15'. Declaration: flashinfer::plan(…)",
        "takes 20 in 0.7.1, 0.7.2, 0.7.2.post1",
        "raw_fa2_plan",
    ),
    (NVCC, "float& aggregate, int& last_valid_index", "#include <flashinfer_compat/sampling.cuh>"),
    (
        "error: no matching function for call to ‘flashinfer::sampling::DeviceSamplingFromProb<4, 256>(int, int)’",
        "last_valid_index",
        "include_dirs()",
    ),
    (
        "RuntimeError: flashinfer-cubin version (0.7.2) does not match flashinfer version (0.7.1). Please install "
        "the same version of both packages.",
        "FlashInfer 0.7.1 refuses to import",
        "pip install flashinfer-cubin==0.7.1",
    ),
    (
        "flashinfer-jit-cache-sm90a version (0.7.4+cu129) does not match flashinfer-jit-cache version (0.7.4+cu130)",
        "",
        "flashinfer-jit-cache-sm90a==0.7.4",
    ),
    ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", "", "doctor"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "", "doctor"),
]


@pytest.mark.parametrize(("text", "releases", "remedy"), KNOWN, ids=[text[:60] for text, _, _ in KNOWN])
def test_recognised(text: str, releases: str, remedy: str) -> None:
    found = explained(text)
    assert found, text
    assert releases in found[0].releases
    assert remedy in found[0].remedy
    assert found[0].cause


UNKNOWN = [
    "",
    "Segmentation fault (core dumped)",
    "TypeError: my_function() got an unexpected keyword argument 'uniform_q_len'",
    "AttributeError: module 'numpy' has no attribute 'float'",
    "TypeError: run() missing 1 required positional argument: 'q'",
    "TypeError: forward() takes 2 positional arguments but 3 were given",
    "TypeError: main() got an unexpected keyword argument 'x'",
    "AttributeError: 'NoneType' object has no attribute 'plan'",
    "ModuleNotFoundError: No module named 'flashinfer_extra'",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_not_recognised(text: str) -> None:
    assert explained(text) == []
    result = testing.CliRunner().invoke(main, ["explain", text])
    assert result.exit_code == 1
    assert result.output.startswith("No error of FlashInfer's")


LOG = f"""\
\x1b[36m(Worker pid=7)\x1b[0m ERROR 12-01 17:00:00 [core.py:1] Traceback (most recent call last):
\x1b[36m(Worker pid=7)\x1b[0m ERROR 12-01 17:00:00 [core.py:1]   File "/engine/attention.py", line 3, in forward
\x1b[36m(Worker pid=7)\x1b[0m ERROR 12-01 17:00:00 [core.py:1] \x1b[31mTypeError\x1b[0m: {PLAN} got an unexpected \
keyword argument \x1b[1m'uniform_q_len'\x1b[0m
E   ImportError: cannot import name 'MoeAlltoAll' from 'flashinfer.comm' (/site/flashinfer/comm/__init__.py)
(Worker pid=8) TypeError: {PLAN} got an unexpected keyword argument 'uniform_q_len'
"""


def test_log_with_several_errors_colours_and_prefixes() -> None:
    result = testing.CliRunner().invoke(main, ["explain", "-", "--format", "json"], input=LOG.encode() + b"\xff")
    assert result.exit_code == 0
    errors = [one["error"] for one in json.loads(result.output)["errors"]]
    assert [error.partition("'")[2].partition("'")[0] for error in errors] == ["uniform_q_len", "MoeAlltoAll"]


def test_text_for_people() -> None:
    result = testing.CliRunner().invoke(main, ["explain", KNOWN[0][0]])
    assert result.exit_code == 0
    assert [line.split(":")[0].strip() for line in result.output.splitlines()[1:]] == ["cause", "releases", "remedy"]


def test_tables_as_read_are_the_tables_as_imported() -> None:
    """Each line that the source shows is one of the adapter's; a table written in another way is read in part."""
    pytest.importorskip("torch", reason="the tables' bridges need torch")
    from flashinfer_compat.adapters import RELEASES

    imported = {
        (key, type(line).__name__, tuple(getattr(line, "adds", ())))
        for key, lines in RELEASES[0].adapter.lines.items()
        for line in lines
    }
    read = {(line.key, line.kind, line.adds) for line in tables.lines()}
    assert read <= imported
    assert {key for key, _, adds in imported if adds} - {key for key, _, adds in read if adds} == set()


def test_neither_flashinfer_nor_torch_is_imported() -> None:
    code = (
        "import sys\nfrom flashinfer_compat.doctor.explain import explained\n"
        f"assert explained({KNOWN[0][0]!r})\nassert not {{'torch', 'flashinfer'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_lines_whose_keys_are_put_together_are_read() -> None:
    from flashinfer_compat.doctor.tables import lines

    said = {line.key: line for line in lines()}
    assert said["comm.trtllm_alltoall.MnnvlMoe"].outcome == "emulated"
    assert said["comm.MoeAlltoAll"].note == "comm exports it up to 0.7.2.post1"
    assert said["comm.trtllm_moe_alltoall.moe_a2a_dispatch"].outcome == "unavailable"
    assert "" not in said

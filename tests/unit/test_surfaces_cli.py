"""The command line: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from surface_of import wheel

from flashinfer_compat.surfaces import store

pytest.importorskip("rich", reason="the command line is an extra: pip install flashinfer-compat[cli]")
testing = pytest.importorskip(
    "click.testing", reason="the command line is an extra: pip install flashinfer-compat[cli]"
)

from flashinfer_compat.cli import main  # noqa: E402

RAGGED = "prefill.BatchPrefillWithRaggedKVCacheWrapper.plan"


def run(*arguments: str, code: int = 0) -> str:
    result = testing.CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return str(result.output)


def test_diff_of_a_symbol_as_text() -> None:
    text = " ".join(run("diff", "0.7.2.post1", "0.7.4", "--symbol", RAGGED).split())
    assert "parameter qo_indptr_cpu inserted before uniform_q_len" in text
    assert text.endswith("FlashInfer 0.7.2.post1 → 0.7.4: 3 differences")


def test_diff_as_json_and_markdown() -> None:
    found = json.loads(run("diff", "0.7.2.post1", "0.7.3", "--symbol", RAGGED, "--format", "json"))
    assert {one["provenance"] for one in found["breakages"]} == {"unknown"}
    assert (found["old"], found["new"]) == ("0.7.2.post1", "0.7.3")
    markdown = run("diff", "0.7.1", "0.7.4", "--symbol", "quantization.fp4_quantize", "--format", "markdown")
    assert "parameter backend defaults to 'auto' instead of 'cuda'" in markdown


def test_diff_of_public_names_by_severity() -> None:
    found = json.loads(run("diff", "0.7.1", "0.7.2", "--public", "--severity", "every use", "--format", "json"))
    assert {one["severity"] for one in found["breakages"]} == {"every use"}
    assert "flashinfer.comm.MoeAlltoAll" not in {one["symbol"] for one in found["breakages"]}
    later = json.loads(run("diff", "0.7.2", "0.7.4", "--public", "--severity", "every use", "--format", "json"))
    assert "flashinfer.comm.MoeAlltoAll" in {one["symbol"] for one in later["breakages"]}


def test_diff_of_what_a_project_uses(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(
        "import flashinfer\nfrom flashinfer.comm import MoeAlltoAll as A\n"
        "import flashinfer.norm as norm\nnorm.rmsnorm(1)\n"
        "g = lazy('flashinfer.fused_moe', 'cutlass_fused_moe')\n"
    )
    (tmp_path / "k.cuh").write_text("#include <flashinfer/sampling.cuh>\nvoid f() { DeviceSamplingFromProb<1>(2); }")
    used = ("--used-by", str(tmp_path))
    found = json.loads(run("diff", "0.7.2.post1", "0.7.4", *used, "--severity", "meaning", "--format", "json"))
    assert {(one["symbol"], one["kind"]) for one in found["breakages"]} == {
        ("flashinfer.comm.MoeAlltoAll", "Removed"),
        ("flashinfer.fused_moe.cutlass_fused_moe", "DefaultChanged"),
        ("data/include/flashinfer/sampling.cuh:DeviceSamplingFromProb", "TemplateChanged"),
    }


def test_record_writes_what_diff_reads(tmp_path: Path) -> None:
    old = wheel(tmp_path, {"ops.py": "def f(a): ..."}, version="1.0")
    new = wheel(tmp_path, {"ops.py": "def f(a, *, b): ..."}, version="1.1")
    output = tmp_path / "old.jsonl.xz"
    assert "FlashInfer 1.0, 2 modules" in run("record", str(old), "--output", str(output))
    assert store.read(output.read_bytes()).version == "1.0"
    assert "required parameter b added" in run("diff", str(output), str(new))


def test_our_own_errors_end_without_a_traceback(tmp_path: Path) -> None:
    assert "is not recorded" in run("diff", "0.1", "0.7.4", code=1)
    assert "is no FlashInfer wheel" in run("record", str(tmp_path / "none.whl"), code=1)

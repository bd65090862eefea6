"""The command: formats, exit codes, the pin, and trees that nobody would write."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from flashinfer_compat.cli import main

from . import sarif

BREAKS = "from flashinfer.comm import MoeAlltoAll\n"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["audit", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    (tmp_path / "moe.py").write_text(BREAKS)
    (tmp_path / "requirements.txt").write_text("# flashinfer-python==0.7.4\nflashinfer_python[cu13]==0.7.2\n")
    return tmp_path


def test_text_and_exit_codes(engine: Path) -> None:
    code, output = run(str(engine))
    assert code == 1
    assert "moe.py:1:29: FIC001 flashinfer.comm.MoeAlltoAll: on 0.7.3, 0.7.4 breaks: ImportError" in output
    assert "written for 0.7.2" in output
    code, _ = run(str(engine), "--to", "0.7.2.post1")
    assert code == 0
    code, output = run(str(engine), "--to", "9.9")
    assert code == 2
    assert "FlashInfer 9.9 is not recorded" in output


def test_json_and_a_baseline(engine: Path, tmp_path: Path) -> None:
    code, output = run(str(engine), "--format", "json")
    report = json.loads(output)
    assert code == 1
    assert (report["from"], report["uses"]) == ("0.7.2", 1)
    (finding,) = report["findings"]
    assert finding["outcomes"]["0.7.4"] == {"effect": "breaks", "why": "ImportError: flashinfer.comm.MoeAlltoAll"}
    baseline = tmp_path / "baseline.json"
    baseline.write_text(output)
    (engine / "moe.py").write_text("\n\n" + BREAKS)  # the same use, further down
    assert run(str(engine), "--baseline", str(baseline))[0] == 0
    for text in ("", "[]", "{}", '{"findings": [1]}'):
        baseline.write_text(text)
        code, output = run(str(engine), "--baseline", str(baseline))
        assert code == 2
        assert "is no JSON report of an audit" in output
    assert run(str(engine), "--baseline", str(tmp_path / "none.json"))[0] == 2


def test_github_and_sarif(engine: Path) -> None:
    code, output = run(str(engine), "--format", "github")
    assert code == 1
    assert output.startswith(
        f"::error file={engine / 'moe.py'},line=1,col=29,title=FIC001::flashinfer.comm.MoeAlltoAll"
    )
    _, output = run(str(engine), "--format", "sarif")
    log = json.loads(output)
    (result,) = log["runs"][0]["results"]
    assert (log["version"], result["ruleId"], result["level"]) == ("2.1.0", "FIC001", "error")
    sarif.validate(log)
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 1, "startColumn": 29}


def test_a_hostile_tree(engine: Path) -> None:
    (engine / "python2.py").write_text("import flashinfer\nprint 'hello'\n")
    (engine / "nul.py").write_bytes(b"import flashinfer\n\0")
    (engine / "latin.py").write_bytes(b"import flashinfer\nx = '\xff'\n")
    (engine / "deep.py").write_text("import flashinfer\nx = " + "(" * 5000 + ")" * 5000)
    (engine / "sum.py").write_text("import flashinfer\nx = " + "+".join(["1"] * 20000))
    (engine / "huge.py").write_bytes(b"import flashinfer\n" + b"#" * 9 * 2**20)
    (engine / "loop").symlink_to(engine)
    (engine / "link.py").symlink_to(engine / "moe.py")
    (engine / "runs.py").write_text(f"import flashinfer, pathlib\npathlib.Path({str(engine / 'ran')!r}).touch()\n")
    os.mkfifo(engine / "fifo.py")
    folder = engine
    for _ in range(30):
        folder = folder / ("d" * 60)
        folder.mkdir()
    (folder / "far.py").write_text(BREAKS)
    code, output = run(str(engine), "--format", "json")
    report = json.loads(output)
    assert code == 1
    assert {Path(one["path"]).name for one in report["findings"]} == {"moe.py", "far.py"}
    skipped = {Path(one["path"]).name: one["why"] for one in report["skipped"]}
    assert set(skipped) >= {"python2.py", "nul.py", "latin.py", "deep.py", "huge.py", "loop", "link.py", "fifo.py"}
    assert skipped["huge.py"] == "larger than 8 MiB"
    assert not (engine / "ran").exists()


def test_a_tree_of_many_files(engine: Path) -> None:
    for folder in range(20):
        (engine / f"package{folder}").mkdir()
        for file in range(100):
            (engine / f"package{folder}" / f"module{file}.py").write_text("import torch\nfrom .. import moe\n")
    code, output = run(str(engine), "--format", "json")
    assert (code, json.loads(output)["files"]) == (1, 2001)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read(engine: Path) -> None:
    (engine / "shut").mkdir(mode=0o000)
    (engine / "shut.py").write_text(BREAKS)
    (engine / "shut.py").chmod(0o000)
    code, output = run(str(engine), "--format", "json")
    assert code == 1
    assert {Path(one["path"]).name for one in json.loads(output)["skipped"]} == {"shut", "shut.py"}


def test_sarif_of_what_is_not_resolved(tmp_path: Path) -> None:
    (tmp_path / "a b.py").write_text("from flashinfer.comm import *\n")
    code, output = run(str(tmp_path), "--format", "sarif")
    log = json.loads(output)
    sarif.validate(log)
    (result,) = log["runs"][0]["results"]
    assert (code, result["ruleId"], result["kind"]) == (0, "FIC900", "review")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("a%20b.py")

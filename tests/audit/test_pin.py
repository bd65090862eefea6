"""The releases that engines run on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from flashinfer_compat.audit.range import specifier
from flashinfer_compat.cli import main

OLD = "from flashinfer.comm import MoeAlltoAll\n"
NEW = """
from flashinfer.moe_ep import create_communication
create_communication(1, 2, 3).dispatch(1, 2, 3, runtime_max_tokens_per_rank=4)
"""


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["pin", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def engines(tmp_path: Path) -> tuple[str, str]:
    for name, text, pin in (("old", OLD, "0.7.2"), ("new", NEW, "0.7.4")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "moe.py").write_text(text)
        (tmp_path / name / "requirements.txt").write_text(f"flashinfer-python=={pin}\n")
    return str(tmp_path / "old"), str(tmp_path / "new")


@pytest.mark.parametrize(
    ("releases", "text"),
    [
        ([], ""),
        (["0.7.2"], "flashinfer-python==0.7.2"),
        (["0.7.1", "0.7.2", "0.7.2.post1"], "flashinfer-python>=0.7.1,<=0.7.2.post1"),
        (["0.7.1", "0.7.2", "0.7.4"], "flashinfer-python>=0.7.1,<=0.7.4,!=0.7.2.post1,!=0.7.3"),
    ],
)
def test_a_specifier(releases: list[str], text: str) -> None:
    assert specifier(releases) == text


def test_one_engine(engines: tuple[str, str]) -> None:
    code, output = run(engines[0], "--format", "json")
    (one,) = json.loads(output)["engines"]
    assert code == 0
    assert (one["engine"], one["written_for"]) == ("old", "0.7.2")
    assert one["native"]["specifier"] == "flashinfer-python>=0.7.1,<=0.7.2.post1"
    assert one["facade"]["specifier"] == "flashinfer-python>=0.7.1,<=0.7.4"


def test_two_engines_that_only_the_facade_brings_together(engines: tuple[str, str]) -> None:
    code, output = run(*engines)
    assert code == 0
    assert "together: no release, as they are" in output
    assert "old not on 0.7.3, 0.7.4" in output
    assert "new not on 0.7.2, 0.7.2.post1" in output
    assert "together: flashinfer-python>=0.7.1,<=0.7.4, with flashinfer_compat" in output


def test_the_check(engines: tuple[str, str], tmp_path: Path) -> None:
    assert run(*engines, "--check")[0] == 0
    (tmp_path / "old" / "requirements.txt").write_text("flashinfer-python>=0.7.1\n")
    code, output = run(engines[0], "--check")
    assert code == 1
    assert "requirements.txt:1: flashinfer-python>=0.7.1 allows 0.7.3, 0.7.4" in output
    assert run(engines[0], "--check", "--facade")[0] == 0
    (tmp_path / "old" / "requirements.txt").unlink()
    code, output = run(engines[0], "--check")
    assert code == 1
    assert "old: no requirement on flashinfer-python is declared" in output

"""The pre-commit hook and the GitHub Action: valid by their schemas, and they call the audit with its options."""

from __future__ import annotations

import json
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from . import sarif

yaml = pytest.importorskip("yaml", reason="comes with pre-commit, a test dependency")

ROOT = Path(__file__).parents[2]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_hook_by_pre_commits_own_schema() -> None:
    clientlib = pytest.importorskip("pre_commit.clientlib")
    (hook,) = clientlib.load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))
    assert (hook["id"], hook["entry"]) == ("flashinfer-compat-audit", "flashinfer-compat audit")
    # Names are re-exported between files: a run over the changed files alone would miss them.
    assert hook["pass_filenames"] is False


def test_hook_installs_what_the_command_line_needs() -> None:
    packaging = pytest.importorskip("tomllib", reason="Python 3.11 and later")
    project = packaging.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert read(".pre-commit-hooks.yaml")[0]["additional_dependencies"] == project["optional-dependencies"]["cli"]


def test_action_by_the_schema_of_schemastore() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    pytest.importorskip("check_jsonschema")
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "github-actions.json"
    jsonschema.validate(read("action.yml"), json.loads(schema.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("inputs", "arguments"),
    [
        ({}, "--from auto --to all --format github -- ."),
        (
            {"AUDIT_PATHS": "engine kernels", "AUDIT_TO": "0.7.4", "AUDIT_BASELINE": "known.json"},
            "--from auto --to 0.7.4 --format github --baseline known.json -- engine kernels",
        ),
        ({"AUDIT_PATHS": "$(touch broken)"}, "--from auto --to all --format github -- $(touch broken)"),
    ],
)
def test_what_the_action_runs(tmp_path: Path, inputs: dict[str, str], arguments: str) -> None:
    action = read("action.yml")
    step = action["runs"]["steps"][-1]
    defaults = {f"AUDIT_{name.upper()}": one["default"] for name, one in action["inputs"].items()}
    assert set(step["env"]) == set(defaults)
    command = tmp_path / "flashinfer-compat"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    environ = {**defaults, **inputs, "PATH": f"{tmp_path}:/usr/bin:/bin", "AUDIT_OUTPUT": str(tmp_path / "out")}
    subprocess.run(["bash", "-euo", "pipefail", "-c", step["run"]], env=environ, check=True, cwd=tmp_path)
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == ["audit", *arguments.split()]
    assert not (tmp_path / "broken").exists()


def test_the_sarif_schema_refuses_and_takes() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    driver = {"name": "flashinfer-compat"}
    sarif.validate({"version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": []}]})
    with pytest.raises(jsonschema.ValidationError):
        sarif.validate({"version": "2.1.0", "runs": [{"tool": {}, "results": []}]})

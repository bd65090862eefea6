"""`report --compare`: what counts as lost, and how it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

testing = pytest.importorskip(
    "click.testing", reason="the command line is an extra: pip install flashinfer-compat[cli]"
)

from flashinfer_compat import features, namespace  # noqa: E402
from flashinfer_compat.cli import main  # noqa: E402
from flashinfer_compat.doctor import report  # noqa: E402

FEATURE = "prefill.uniform_q_len"


@pytest.mark.parametrize(
    ("before", "now", "is_lost"),
    [
        ("native", "native", False),
        ("native", "emulated", False),
        ("emulated", "native", False),
        ("native", "ignored", True),
        ("emulated", "unavailable", True),
        ("ignored", "unavailable", True),
        ("unavailable", "native", False),
        ("unavailable", "unavailable", False),
    ],
)
def test_lost(before: str, now: str, is_lost: bool) -> None:
    old = {"flashinfer": "0.7.1", "features": {FEATURE: before}}
    new = {"flashinfer": namespace.selected.installed, "features": {FEATURE: now}}
    found = report.lost(old, new)
    assert [(one.feature, one.before, one.now, bool(one.remedy)) for one in found] == (
        [(FEATURE, before, now, True)] if is_lost else []
    )


def test_a_gate_is_lost_as_a_feature_is() -> None:
    old = {"flashinfer": "0.7.2", "features": {}, "gates": {"comm.MoeAlltoAll": "native", "norm.rmsnorm": "native"}}
    new = {"flashinfer": None, "features": {}, "gates": {"comm.MoeAlltoAll": "unavailable", "norm.rmsnorm": "native"}}
    assert [(one.feature, one.before, one.now) for one in report.lost(old, new)] == [
        ("comm.MoeAlltoAll", "native", "unavailable")
    ]
    assert report.lost({"flashinfer": "0.7.2", "features": {}}, new) == [], "a report from before there were gates"


def test_a_report_is_green_against_itself(tmp_path: Path) -> None:
    written = testing.CliRunner().invoke(main, ["report", "--format", "json"])
    assert written.exit_code == 0
    assert json.loads(written.output) == features.report()
    old = tmp_path / "old.json"
    old.write_text(written.output, encoding="utf-8")
    result = testing.CliRunner().invoke(main, ["report", "--compare", str(old)])
    assert result.exit_code == 0, result.output
    assert "no feature lost" in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "is no report"),
        ("{}", "is no report"),
        ("[" * 100_000, "is no report"),
        ('{"features": ["ab"]}', "is no report"),
        ('{"features": {"norm.rmsnorm": ["native"]}}', "is no report"),
        ('{"features": {"norm.rmsnorm": "fine"}}', "is no report"),
        ('{"features": {}, "gates": []}', "is no report"),
        ('{"features": {}, "gates": {"norm.rmsnorm": null}}', "is no report"),
        ('{"features": {}, "error": "OSError: no libcudart", "flashinfer": "0.7.1"}', "could not be imported"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, said: str) -> None:
    old = tmp_path / "old.json"
    old.write_text(text, encoding="utf-8")
    result = testing.CliRunner().invoke(main, ["report", "--compare", str(old)])
    assert result.exit_code == 2
    assert said in result.output


def test_what_the_reference_lacks_is_not_blamed_on_flashinfer() -> None:
    old = {"flashinfer": "0.7.4", "features": {FEATURE: "native"}}
    new = {"backend": "reference", "flashinfer": "0.7.4", "features": {FEATURE: "ignored"}}
    (one,) = report.lost(old, new)
    assert one.remedy == (
        "The reference in plain PyTorch takes the place of FlashInfer: unset FLASHINFER_COMPAT_BACKEND."
    )


def test_a_feature_that_is_gone_fails(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"flashinfer": "0.7.4", "features": {"gone.feature": "native"}}), encoding="utf-8")
    result = testing.CliRunner().invoke(main, ["report", "--compare", str(old), "--format", "json"])
    assert result.exit_code == 1
    (one,) = json.loads(result.output)["lost"]
    assert (one["feature"], one["before"], one["now"]) == ("gone.feature", "native", "unknown")
    assert one["remedy"]


def test_flashinfer_that_fails_on_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails() -> None:
        raise RuntimeError("flashinfer-cubin version (0.7.2) does not match flashinfer version (0.7.1).")

    monkeypatch.setattr(features, "report", fails)
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"flashinfer": "0.7.1", "features": {FEATURE: "emulated"}}), encoding="utf-8")
    result = testing.CliRunner().invoke(main, ["report", "--compare", str(old)])
    assert result.exit_code == 1
    assert "It cannot be imported: RuntimeError: flashinfer-cubin version (0.7.2)" in result.output
    assert f"lost: {FEATURE}: emulated before, unknown now" in result.output


def test_usage(tmp_path: Path) -> None:
    assert testing.CliRunner().invoke(main, ["report", "--compare", str(tmp_path / "none.json")]).exit_code == 2
    other = tmp_path / "other.json"
    other.write_text("[]", encoding="utf-8")
    result = testing.CliRunner().invoke(main, ["report", "--compare", str(other)])
    assert result.exit_code == 2
    assert "is no report" in result.output

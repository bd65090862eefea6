"""What a source tree declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashinfer_compat.audit.audited import audit

from .conftest import told


@pytest.mark.parametrize(
    ("name", "text", "written_for"),
    [
        ("requirements.txt", "flashinfer_python[cu13]==0.7.2 ; sys_platform == 'linux'", "0.7.2"),
        ("requirements-cuda.txt", "# flashinfer-python==0.7.4\nflashinfer-python >= 0.7.1, < 0.7.3", "0.7.2.post1"),
        ("pyproject.toml", 'dependencies = ["flashinfer-python==0.7.2.post1", "other==1"]', "0.7.2.post1"),
        ("setup.py", "install_requires=['flashinfer-python~=0.7.1']", "0.7.4"),
        ("METADATA", "Requires-Dist: flashinfer-python (==0.7.1)", "0.7.1"),
        ("requirements.txt", "flashinfer-python", "0.7.4"),
        ("requirements.txt", "not-flashinfer-python==0.7.1", "0.7.4"),
    ],
)
def test_the_pin(tmp_path: Path, name: str, text: str, written_for: str) -> None:
    (tmp_path / name).write_text(text)
    assert audit([tmp_path]).written_for == written_for


@pytest.mark.parametrize(
    ("requirement", "releases"),
    [
        ("nvidia-cutlass-dsl==4.6.2", ["0.7.4"]),
        ("nvidia-cutlass-dsl>=4.6.2,<4.8", ["0.7.4"]),
        ("nvidia-cudnn-frontend==1.31.0", ["0.7.4"]),
        ("nvidia-cudnn-frontend<1.32", ["0.7.4"]),
        # What the release that the source is written for clashes with already, is of another environment.
        ("nvidia-cutlass-dsl==4.2.0", []),
        ("nvidia-cutlass-dsl>=4.2.0", []),
        ("apache-tvm-ffi<0.1.0", []),
        ("numpy>=1.20", []),
        ("unheard-of==1", []),
    ],
)
def test_floors_that_clash(tmp_path: Path, requirement: str, releases: list[str]) -> None:
    (tmp_path / "requirements.txt").write_text(f"flashinfer-python==0.7.2\n{requirement}\n")
    found = [one for one in told(audit([tmp_path], "0.7.2").findings) if one[0] == "FIC401"]
    assert [release for _, _, outcomes in found for release in outcomes if release != "0.7.3"] == releases

"""An engine's kernel on flashinfer_compat/sampling.cuh compiles against the installed release's headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from nvcc import compile_shared

SOURCE = Path(__file__).with_name("sampling_header.cu")
#: Stated, not asked of the package: the releases whose DeviceSamplingFromProb takes 8 arguments.
TAKES_LAST_VALID_INDEX = ("0.7.3", "0.7.4")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("standard", [17, 20])
def test_kernel_compiles(release: str, tmp_path: Path, standard: int) -> None:
    expected = str(release in TAKES_LAST_VALID_INDEX).lower()
    library = tmp_path / "sampling.so"
    compile_shared(
        SOURCE,
        library,
        architectures=["sm_80", "sm_90a"],
        standard=standard,
        # A static_assert of the kernel's: what was found in the header is what is known of the release.
        defines=[f"EXPECTS_LAST_VALID_INDEX={expected}"],
    )
    assert library.is_file()

"""C++ and CUDA sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashinfer_compat.audit.audited import audit
from flashinfer_compat.audit.findings import Finding

from .conftest import told

SEVEN = """
#include <flashinfer/sampling.cuh>  // DeviceSamplingFromProb(a)
/* DeviceSamplingFromProb(1, 2)
*/
__device__ void f() {
  flashinfer::sampling::DeviceSamplingFromProb<VEC, THREADS, SCAN, REDUCE, true, Pred<int, 2>>(
      i, d, pred, u, vec_t<float, VEC>(probs, 0), aggregate, &storage);
}
"""
EIGHT = SEVEN.replace("aggregate,", "aggregate, last,")
NEW = {"0.7.3": "breaks", "0.7.4": "breaks"}
OLD = {"0.7.1": "breaks", "0.7.2": "breaks", "0.7.2.post1": "breaks"}


def found_in(tmp_path: Path, pinned: str, **files: str) -> list[Finding]:
    for name, text in files.items():
        (tmp_path / name.replace("_", ".")).write_text(text)
    return audit([tmp_path], pinned).findings


@pytest.mark.parametrize(
    ("text", "pinned", "outcomes"), [(SEVEN, "0.7.2", NEW), (EIGHT, "0.7.4", OLD)], ids=["seven", "eight"]
)
def test_an_argument_more(tmp_path: Path, text: str, pinned: str, outcomes: dict[str, str]) -> None:
    found = found_in(tmp_path, pinned, kernel_cu=text)
    assert told(found) == [("FIC302", "DeviceSamplingFromProb", outcomes)]
    assert (found[0].line, found[0].column) == (6, 25)
    assert found[0].facade == (
        "Emulated by flashinfer_compat: include <flashinfer_compat/sampling.cuh> from include_dirs()."
    )


@pytest.mark.parametrize(
    "text",
    [
        SEVEN.replace("flashinfer/sampling.cuh", "other/sampling.cuh"),
        SEVEN.replace("flashinfer::sampling::DeviceSamplingFromProb", "own.DeviceSamplingFromProb"),
        # One for the old releases and one for the new.
        SEVEN + EIGHT,
        "#include <flashinfer/sampling.cuh>\ntemplate <int N> void DeviceSamplingFromProb(int i) {}\n"
        "void f() { DeviceSamplingFromProb<1>(2); }",
        "#include <flashinfer/sampling.cuh>\nvoid f() { flashinfer::sampling::TopPRenormProb(1, 2, 3, 4, 5, 6); }",
    ],
)
def test_what_compiles(tmp_path: Path, text: str) -> None:
    assert told(found_in(tmp_path, "0.7.2", kernel_cu=text)) == []


def test_a_header_that_includes_it_for_others(tmp_path: Path) -> None:
    use = '#include "own.cuh"' + SEVEN.partition("sampling.cuh>")[2]
    found = found_in(tmp_path, "0.7.2", own_cuh="#include <flashinfer/sampling.cuh>\n", kernel_cu=use)
    assert [(Path(one.path).name, one.symbol) for one in found] == [("kernel.cu", "DeviceSamplingFromProb")]

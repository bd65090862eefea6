"""The selftest's cases on a device: the reference's numbers, eagerly and in captured graphs.

Inputs are drawn on the host from one seed, so that a case's digest can be compared between releases.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
import torch

from flashinfer_compat.reference import accumulate_in
from flashinfer_compat.selftest import running
from flashinfer_compat.selftest.case import Case, Outputs
from flashinfer_compat.selftest.cases import CASES
from flashinfer_compat.selftest.library import FACADE, REFERENCE

from .reference import DEVICE

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SEED = 20260
#: Those whose wrapper can be one for CUDA graphs.
CAPTURED = [case for case in CASES if hasattr(case.workload, "captured")]


def skip_if_unavailable(case: Case) -> None:
    if reason := running.unavailable(case):
        pytest.skip(reason)


def digest(outputs: Outputs) -> str:
    """Of the bytes; zero has one sign."""
    total = hashlib.sha256()
    for each in outputs:
        values = each + 0.0 if each.dtype.itemsize > 1 and each.is_floating_point() else each
        total.update(values.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return total.hexdigest()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_eager(case: Case, case_digests: dict[str, str]) -> None:
    skip_if_unavailable(case)
    got = case.workload.prepare(case.draw(SEED, DEVICE), FACADE).run()
    case_digests[case.name] = digest(got)
    error = case.measure.of(got, case.workload.expected(case.draw(SEED, DEVICE)))
    assert case.measure.accepts(error, case.tolerance), f"{case.measure} {error:.2e}, tolerance {case.tolerance:.0e}"


@pytest.mark.parametrize("case", CAPTURED, ids=str)
def test_captured(case: Case) -> None:
    """Captured, the inputs changed in place, replayed: the numbers of the new inputs."""
    skip_if_unavailable(case)
    workload: Any = case.workload
    workload = replace(workload, captured=True)
    with accumulate_in(torch.float64):
        expected = workload.prepare(case.draw(SEED, DEVICE), REFERENCE)
    operation = workload.prepare(case.draw(SEED, DEVICE), FACADE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        operation.run()  # compiled, and its scratch allocated, outside of the graph
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = operation.run()
    for inputs in (operation.inputs, expected.inputs):
        for tensor in inputs:
            turn_over(tensor)
    graph.replay()
    with accumulate_in(torch.float64):
        error = case.measure.of(got, expected.run())
    assert case.measure.accepts(error, case.tolerance), f"{case.measure} {error:.2e}, tolerance {case.tolerance:.0e}"


def turn_over(tensor: torch.Tensor) -> None:
    """The last row becomes the first, in place."""
    stored = tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor
    stored.copy_(stored.flip(0))

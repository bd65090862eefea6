"""``torch.compile(fullgraph=True)`` of plain functions: what works of FlashInfer's own works of the facade's."""

from __future__ import annotations

import pytest
import torch

from flashinfer_compat.selftest import running
from flashinfer_compat.selftest.case import Case, Function, Outputs
from flashinfer_compat.selftest.cases import CASES
from flashinfer_compat.selftest.library import FACADE, NATIVE, Library

from .reference import DEVICE

pytestmark = pytest.mark.gpu

SEED = 20260
FUNCTIONS = [case for case in CASES if isinstance(case.workload, Function)]


def compiled(case: Case, library: Library) -> Outputs:
    torch.compiler.reset()
    operation = case.workload.prepare(case.draw(SEED, DEVICE), library)
    return torch.compile(operation.run, fullgraph=True)()


@pytest.mark.parametrize("case", FUNCTIONS, ids=str)
def test_the_facade_compiles_where_flashinfer_does(case: Case) -> None:
    if reason := running.unavailable(case):
        pytest.skip(reason)
    # What FlashInfer compiles just in time is compiled before, not while PyTorch looks at the call.
    eager = case.workload.prepare(case.draw(SEED, DEVICE), FACADE).run()
    try:
        native = compiled(case, NATIVE)
    except Exception as error:
        pytest.skip(f"FlashInfer's own does not compile: {type(error).__name__}")
    facade = compiled(case, FACADE)
    assert len(facade) == len(native) == len(eager)
    for got, own, uncompiled in zip(facade, native, eager, strict=True):
        assert torch.equal(got, own)
        torch.testing.assert_close(got.float(), uncompiled.float(), rtol=1e-2, atol=1e-2, equal_nan=True)

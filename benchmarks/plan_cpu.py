"""Host time of planning without a GPU, in microseconds of CPU time: FlashInfer's own plan() against the facade's.

The batch is that of `plan_time`, its tensors on the CPU. FlashInfer's wrappers plan with their own code; only the
compiled module below them is a stand-in that answers at once, so that a ratio is a little larger here than on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import flashinfer as native
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat.bridges import planner

from .measuring import Options, Row, call_time, compared, interleaved
from .plan_time import PAGE_SIZE, Q_LEN, Batch, Group, native_hint

#: Calls of one measurement.
CALLS = 10
#: A PrefillPlanInfo as the planner returns it: padded batch size, …, query tile at 3, …, split-KV at 14.
PLAN_INFO = [264, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]


@contextmanager
def without_gpu() -> Iterator[None]:
    """A stand-in for each FA2 module that FlashInfer would compile; memory is not pinned, and nothing is captured."""

    def answer(*arguments: Any) -> list[int]:
        return list(PLAN_INFO)

    module = SimpleNamespace(plan=answer, paged_run=answer, ragged_run=answer, workspace_size=answer)
    empty = torch.empty

    # Functions and no mocks, whose calls take longer than those that are measured.
    def get_module(*arguments: Any) -> SimpleNamespace:
        return module

    def is_capturing() -> bool:
        return False

    def pageable_empty(*sizes: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return empty(*sizes, **options)

    with ExitStack() as seams:
        for owner in (native.prefill, native.decode):
            seams.enter_context(mock.patch.object(owner, "get_batch_prefill_module", get_module))
        seams.enter_context(mock.patch.object(torch, "empty", pageable_empty))
        # A torch built for CUDA raises here where there is no driver.
        seams.enter_context(mock.patch.object(planner, "is_capturing", is_capturing))
        yield


def groups() -> dict[str, Group]:
    batch = Batch(PAGE_SIZE, "cpu")
    hint: dict[str, Any] = {"uniform_q_len": Q_LEN}
    return {
        "paged, graph": {"native": batch.plan(native), "facade": batch.plan(flashinfer)},
        "paged, graph, hint": {**native_hint(batch), "facade, hint": batch.plan(flashinfer, **hint)},
        "ragged, eager": {"native": batch.ragged(native), "facade": batch.ragged(flashinfer)},
        "decode, graph": {"native": batch.decode(native), "facade": batch.decode(flashinfer)},
        "fast plan": {
            "native plan()": batch.plan(native),
            "fast_prefill_plan, hint": batch.fast_plan(masked=False, **hint),
        },
    }


def measure(options: Options) -> list[Row]:
    torch.manual_seed(0)
    rows: list[Row] = []
    with without_gpu():
        for name, group in groups().items():
            measures = {variant: call_time(call, CALLS, clock=time.process_time) for variant, call in group.items()}
            rows += compared(name, "µs", interleaved(measures, options.rounds(80), warm=3))
    return rows

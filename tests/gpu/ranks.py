"""Processes, one for each rank, that run functions of a test together.

Every rank has its own process and CUDA context. Where there are fewer GPUs than ranks, ranks share a GPU: the symmetric
memory is exchanged by file descriptors, which works between processes of one device too, and the GPU gives the contexts
turns of some milliseconds, so that kernels that wait for each other make progress. The process group is gloo's: NCCL
refuses two ranks on one device. FlashInfer asks NVML for NVLinks that are up, and a GPU by itself may have none: for
ranks of one GPU NVML's answer is overruled, and FlashInfer itself is as it is. None of this is of use to an
engine, and no time measured so says anything.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from flashinfer_compat.selftest import nvlink


class Ranks:
    """`size` ranks, started with the first call and again with the first one after a failure."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def run(
        self, function: Callable[..., Any], *arguments: Any, timeout: float = 60, dying: Sequence[int] = ()
    ) -> list[Any]:
        """``function(rank, size, *arguments)`` of each rank; those that are expected to die give None.

        A failure on one rank, or a result that does not come in `timeout` seconds, ends all of them: the others wait
        for it on their device.
        """
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((function, arguments))
        results: dict[int, Any] = {}
        failures: list[str] = []
        waiting = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        deadline = time.monotonic() + timeout
        while waiting and not failures:
            ready = wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                failures.append(f"ranks {sorted(waiting.values())} gave no result in {timeout} s")
            for pipe in ready:
                rank = waiting.pop(pipe)  # type: ignore[call-overload]
                try:
                    succeeded, results[rank] = pipe.recv()  # type: ignore[union-attr]
                except EOFError:
                    succeeded, results[rank] = rank in dying, None
                if not succeeded:
                    failures.append(f"rank {rank}: {results[rank] or 'its process died'}")
        if failures or dying:
            self.stop()
        if failures:
            raise AssertionError("\n".join(failures))
        return [results[rank] for rank in range(self.size)]

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        self._processes, self._pipes = [], []

    def _start(self) -> None:
        spawning = multiprocessing.get_context("spawn")
        store = Path(tempfile.mkdtemp(prefix="ranks-")) / "store"
        for rank in range(self.size):
            ours, theirs = spawning.Pipe()
            process = spawning.Process(target=_work, args=(rank, self.size, str(store), theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)


def _work(rank: int, size: int, store: str, pipe: Connection) -> None:
    alone = size == 1 or torch.cuda.device_count() < size
    with nvlink.taken_to_be_up() if alone else nullcontext():
        _answer(rank, size, store, pipe)


def _answer(rank: int, size: int, store: str, pipe: Connection) -> None:
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    while True:
        function, arguments = pipe.recv()
        try:
            answer = True, function(rank, size, *arguments)
        except BaseException:
            answer = False, traceback.format_exc()
        pipe.send(answer)

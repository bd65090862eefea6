"""Dispatch and combine of expert parallelism through the facade, and through FlashInfer's own API of the same release.

A call is a dispatch of bfloat16 rows, expert ids and weights, the buffer for the experts' outputs, and the combine
from it; no experts between; hidden 7168, 64 experts, top-k 8. `moe_ep` is create_communication with
NVLinkOneSidedConfig, `comm` is MoeAlltoAll; "native" is FlashInfer's own class, "facade" what flashinfer_compat makes
of it, or builds where the release has no such class. The ratio is to the native call of the same API, of the other one
where the release lacks it.

Device time is that of a CUDA graph with `CALLS` calls, host time that of the calls alone, the device idle before. A
process, a rank, for each GPU that is visible (CUDA_VISIBLE_DEVICES). With one rank nobody waits for a peer, and no row
leaves the GPU; it needs no NVLink, which FlashInfer asks NVML for: its answer is overruled. The figures are those of
the first rank.
"""

from __future__ import annotations

import inspect
import pickle
import tempfile
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from flashinfer_compat.selftest import nvlink

from .measuring import Options, Row, call_time, compared, interleaved

EXPERTS, TOP_K, HIDDEN = 64, 8, 7168
#: Tokens of each rank.
TOKENS = (1, 64, 1024)
#: Calls of one measurement.
CALLS = 20


class NewApi:
    """moe_ep's, of FlashInfer or of the facade."""

    def __init__(self, moe_ep: Any, rank: int, ranks: int) -> None:
        self.communication = moe_ep.create_communication(
            moe_ep.BootstrapConfig(world_size=ranks, rank=rank),
            moe_ep.MoEEpCommParams(
                num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=max(TOKENS), hidden_size=HIDDEN
            ),
            moe_ep.NVLinkOneSidedConfig(),
        )
        taken = inspect.signature(self.communication.dispatch).parameters
        # FlashInfer 0.7.2 has the older name alone.
        self.size = next(name for name in ("runtime_max_tokens_per_rank", "max_tokens_per_rank") if name in taken)

    def call(self, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, tokens: int) -> Callable[[], Any]:
        communication, size = self.communication, {self.size: tokens}

        def once() -> Any:
            communication.dispatch(hidden, ids, weights, **size)
            return communication.combine(communication.get_combine_input_buffer(torch.bfloat16))

        return once


class OldApi:
    """comm.MoeAlltoAll, of FlashInfer or of the facade."""

    def __init__(self, comm: Any, mnnvl: Any, rank: int, ranks: int) -> None:
        self.alltoall = comm.MoeAlltoAll(
            comm.Mapping(world_size=ranks, rank=rank, gpus_per_node=ranks, tp_size=ranks, moe_ep_size=ranks),
            max_num_tokens=max(TOKENS),
            top_k=TOP_K,
            num_experts=EXPERTS,
            workspace_size_per_rank=comm.moe_a2a_get_workspace_size_per_rank(
                ranks, max(TOKENS), 2 * HIDDEN + 8 * TOP_K, 2 * HIDDEN
            ),
            mnnvl_config=mnnvl.MnnvlConfig(comm_backend=mnnvl.TorchDistBackend()),
        )

    def call(self, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, tokens: int) -> Callable[[], Any]:
        alltoall, payloads = self.alltoall, [hidden, ids, weights]

        def once() -> Any:
            alltoall.dispatch(ids, payloads, tokens, invalid_token_expert_id=-1, expert_id_payload_index=1)
            buffer = alltoall.get_combine_payload_tensor_in_workspace(tokens, HIDDEN, torch.bfloat16)
            return alltoall.combine(buffer, tokens, payload_in_workspace=True)

        return once


def variants(rank: int, ranks: int) -> dict[str, Any]:
    """What the installed release has, and the facade's."""
    import flashinfer.comm
    import flashinfer.comm.mnnvl
    import flashinfer.moe_ep

    import flashinfer_compat

    made: dict[str, Any] = {}
    if hasattr(flashinfer.moe_ep, "create_communication"):
        made["moe_ep, native"] = NewApi(flashinfer.moe_ep, rank, ranks)
    made["moe_ep, facade"] = NewApi(flashinfer_compat.moe_ep, rank, ranks)
    if hasattr(flashinfer.comm, "MoeAlltoAll"):
        made["comm, native"] = OldApi(flashinfer.comm, flashinfer.comm.mnnvl, rank, ranks)
    made["comm, facade"] = OldApi(flashinfer_compat.comm, flashinfer_compat.comm.mnnvl, rank, ranks)
    return made


def base_of(name: str, names: Any) -> str:
    """The native variant that `name` is compared with."""
    same = f"{name.partition(',')[0]}, native"
    return same if same in names else next(each for each in names if each.endswith("native"))


def graph_time(call: Callable[[], Any]) -> Callable[[], float]:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once() -> float:
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / CALLS * 1e3

    return once


def host_time(call: Callable[[], Any]) -> Callable[[], float]:
    def together() -> None:
        torch.cuda.synchronize()
        torch.distributed.barrier()

    return call_time(call, CALLS, before=together)


def measure_rank(rank: int, ranks: int, options: Options, folder: Path) -> None:
    """One process; the first leaves its rows in the folder."""
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=ranks)
    warnings.simplefilter("ignore", DeprecationWarning)
    with nvlink.taken_to_be_up() if ranks == 1 else nullcontext():
        made = variants(rank, ranks)
    against = {name: base_of(name, made) for name in made}
    rows: list[Row] = []
    for tokens in TOKENS:
        torch.manual_seed(rank)
        hidden = torch.randn(tokens, HIDDEN, device="cuda").bfloat16()
        ids = torch.rand(tokens, EXPERTS, device="cuda").argsort(1)[:, :TOP_K].int().contiguous()
        weights = torch.rand(tokens, TOP_K, device="cuda")
        calls = {name: variant.call(hidden, ids, weights, tokens) for name, variant in made.items()}
        for kind, timer in (("device", graph_time), ("host", host_time)):
            measures = {name: timer(call) for name, call in calls.items()}
            taken = interleaved(measures, options.rounds(21), warm=3)
            rows += compared(f"{tokens} tokens, {ranks} ranks; {kind}", "µs", taken, against)
    if rank == 0:
        (folder / "rows").write_bytes(pickle.dumps(rows))
    torch.distributed.barrier()


def measure(options: Options) -> list[Row]:
    ranks = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measure_rank, (ranks, options, Path(folder)), nprocs=ranks)
        rows: list[Row] = pickle.loads((Path(folder) / "rows").read_bytes())
    return rows

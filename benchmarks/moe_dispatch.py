"""Dispatch and combine of expert parallelism through the facade, and through FlashInfer's own API of the same release.

A call is a dispatch of bfloat16 rows, expert ids and weights, the buffer for the experts' outputs, and the combine from
it; no experts between. `moe_ep` is create_communication with NVLinkOneSidedConfig, `comm` is MoeAlltoAll; "native" is
FlashInfer's own class, "facade" what flashinfer_compat makes of it, or builds where the release has no such class. The
ratio is to the native call of the same API, of the other one where the release lacks it.

Device time is that of a CUDA graph with `--calls` calls, host time that of the calls alone, the device idle before.
`--ranks` says how many processes; each has a GPU of its own, or they share one where there are fewer, and then wait for
each other's turn on it: device times of ranks that share a GPU are no measure of anything, and are left out. With one
rank nobody waits for a peer, and no row leaves the GPU. Such ranks need no NVLink, which FlashInfer asks NVML for: its
answer is overruled. The figures are those of the first rank.
"""

from __future__ import annotations

import argparse
import inspect
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _results import Sample, interleaved, parser, ratio, report, where_on_gpu

EXPERTS, TOP_K = 64, 8


class NewApi:
    """moe_ep's, of FlashInfer or of the facade."""

    def __init__(self, moe_ep: Any, rank: int, ranks: int, capacity: int, hidden: int) -> None:
        self.communication = moe_ep.create_communication(
            moe_ep.BootstrapConfig(world_size=ranks, rank=rank),
            moe_ep.MoEEpCommParams(num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=capacity, hidden_size=hidden),
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

    def __init__(self, comm: Any, mnnvl: Any, rank: int, ranks: int, capacity: int, hidden: int) -> None:
        self.hidden = hidden
        self.alltoall = comm.MoeAlltoAll(
            comm.Mapping(world_size=ranks, rank=rank, gpus_per_node=ranks, tp_size=ranks, moe_ep_size=ranks),
            max_num_tokens=capacity,
            top_k=TOP_K,
            num_experts=EXPERTS,
            workspace_size_per_rank=comm.moe_a2a_get_workspace_size_per_rank(
                ranks, capacity, 2 * hidden + 8 * TOP_K, 2 * hidden
            ),
            mnnvl_config=mnnvl.MnnvlConfig(comm_backend=mnnvl.TorchDistBackend()),
        )

    def call(self, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, tokens: int) -> Callable[[], Any]:
        alltoall, payloads = self.alltoall, [hidden, ids, weights]

        def once() -> Any:
            alltoall.dispatch(ids, payloads, tokens, invalid_token_expert_id=-1, expert_id_payload_index=1)
            buffer = alltoall.get_combine_payload_tensor_in_workspace(tokens, self.hidden, torch.bfloat16)
            return alltoall.combine(buffer, tokens, payload_in_workspace=True)

        return once


def variants(rank: int, ranks: int, capacity: int, hidden: int) -> dict[str, Any]:
    """What the installed release has, and the facade's."""
    import flashinfer.comm
    import flashinfer.comm.mnnvl
    import flashinfer.moe_ep
    import flashinfer_compat.comm.mnnvl
    import flashinfer_compat.moe_ep

    sizes = rank, ranks, capacity, hidden
    made: dict[str, Any] = {}
    if hasattr(flashinfer.moe_ep, "create_communication"):
        made["moe_ep, native"] = NewApi(flashinfer.moe_ep, *sizes)
    made["moe_ep, facade"] = NewApi(flashinfer_compat.moe_ep, *sizes)
    if hasattr(flashinfer.comm, "MoeAlltoAll"):
        made["comm, native"] = OldApi(flashinfer.comm, flashinfer.comm.mnnvl, *sizes)
    made["comm, facade"] = OldApi(flashinfer_compat.comm, flashinfer_compat.comm.mnnvl, *sizes)
    return made


def base_of(name: str, names: Any) -> str:
    """The native variant that `name` is compared with."""
    same = f"{name.partition(',')[0]}, native"
    return same if same in names else next(each for each in names if each.endswith("native"))


def graph_time(call: Callable[[], Any], calls: int) -> Callable[[], float]:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once() -> float:
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / calls * 1e3

    return once


def host_time(call: Callable[[], Any], calls: int) -> Callable[[], float]:
    def once() -> float:
        torch.cuda.synchronize()
        torch.distributed.barrier()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - began) / calls * 1e6

    return once


def without_nvlink() -> None:
    """Let NVML say that each link is up."""
    import pynvml

    pynvml.nvmlDeviceGetNvLinkCapability = lambda device, link, capability: 1
    pynvml.nvmlDeviceGetNvLinkState = lambda device, link: pynvml.NVML_FEATURE_ENABLED


def measure(rank: int, args: argparse.Namespace, store: str) -> None:
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=args.ranks)
    warnings.simplefilter("ignore", DeprecationWarning)
    shared = args.ranks > torch.cuda.device_count()
    if shared or args.ranks == 1:
        without_nvlink()
    capacity = max(args.tokens)
    made = variants(rank, args.ranks, capacity, args.hidden)
    rows = []
    for tokens in args.tokens:
        torch.manual_seed(rank)
        hidden = torch.randn(tokens, args.hidden, device="cuda").bfloat16()
        ids = torch.rand(tokens, EXPERTS, device="cuda").argsort(1)[:, :TOP_K].int().contiguous()
        weights = torch.rand(tokens, TOP_K, device="cuda")
        calls = {name: variant.call(hidden, ids, weights, tokens) for name, variant in made.items()}
        taken: dict[str, dict[str, Sample]] = {}
        for kind, timer in (("device", graph_time), ("host", host_time)):
            if kind == "device" and shared:
                continue
            timed = {name: timer(call, args.calls) for name, call in calls.items()}
            interleaved(timed, 3)  # warm
            taken[kind] = interleaved(timed, args.rounds)
        for name in made:
            base = base_of(name, made)
            device, host = taken.get("device"), taken["host"]
            times = (device[name], ratio(device[name], device[base])) if device else (None, None)
            difference = f"{host[name].median - host[base].median:+.1f}"
            rows.append([tokens, name, base, *times, host[name], ratio(host[name], host[base]), difference])
    if rank == 0:
        facts = where_on_gpu() | {
            "ranks": args.ranks, "GPUs": min(args.ranks, torch.cuda.device_count()), "hidden": args.hidden,
            "experts": EXPERTS, "top-k": TOP_K,
        }  # fmt: skip
        header = ("tokens", "call", "against", "device µs", "device ratio", "host µs", "host ratio", "difference")
        report(facts, header, rows, args.json)
    torch.distributed.barrier()


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--ranks", type=int, default=max(1, torch.cuda.device_count()))
    arguments.add_argument("--tokens", type=int, nargs="+", default=[1, 64, 1024], help="tokens of each rank")
    arguments.add_argument("--hidden", type=int, default=7168)
    arguments.add_argument("--calls", type=int, default=20, help="calls of one measurement")
    arguments.add_argument("--rounds", type=int, default=21, help="measurements of each variant")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(measure, (args, str(Path(folder) / "store")), nprocs=args.ranks)


if __name__ == "__main__":
    main()

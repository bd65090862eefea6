"""What engines' own, unmodified modules do with FlashInfer under the patch: each scenario in its own interpreter.

    python tests/engines/scenarios.py SCENARIO SOURCE

Prints JSON. The engine's module is real, the rest of the engine is stubbed, FlashInfer is the installed wheel; only the
compiled modules are recording fakes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import flashinfer_compat

flashinfer_compat.patch()
sys.path[:0] = [str(Path(__file__).parents[1])]


def sglang_fast_plan(source: Path) -> dict[str, Any]:
    """sglang's sync-free plan hands the raw planner a list of 20, written for 0.7.2."""
    import flashinfer
    import torch
    from contract.conftest import RecordingModule

    from engines.stubs import load
    from flashinfer_compat.bridges import planner

    arguments = 21 if flashinfer_compat.report()["adapter"] in ("0.7.3", "0.7.4") else 20
    recording = RecordingModule(arguments)
    flashinfer.prefill.get_batch_prefill_module = lambda *args: recording
    empty = torch.empty
    torch.empty = lambda *args, pin_memory=False, **options: empty(*args, **options)
    planner.is_capturing = lambda: False

    engine = load(source, "sglang.srt.layers.attention.flashinfer_backend")
    batch, q_len = 4, 4
    qo_indptr = torch.arange(0, (batch + 1) * q_len, q_len, dtype=torch.int32)
    kv_indptr = torch.tensor([0, 32, 51, 67, 100], dtype=torch.int32)
    kv_indices = torch.arange(100, dtype=torch.int32)
    last_page_len = torch.ones(batch, dtype=torch.int32)
    wrapper = engine.BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(1024, dtype=torch.uint8),
        use_cuda_graph=True,
        backend="fa2",
        qo_indptr_buf=torch.zeros(batch + 1, dtype=torch.int32),
        paged_kv_indptr_buf=torch.zeros(batch + 1, dtype=torch.int32),
        paged_kv_indices_buf=torch.zeros(128, dtype=torch.int32),
        paged_kv_last_page_len_buf=torch.zeros(batch, dtype=torch.int32),
    )
    layout = (qo_indptr, kv_indptr, kv_indices, last_page_len, 32, 8, 128, 1)
    options = {"causal": True, "q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}
    wrapper.plan(*layout, **options)
    engine.fast_prefill_plan(
        wrapper,
        *layout,
        **options,
        qo_indptr_host=qo_indptr,
        kv_indptr_host=kv_indptr,
        kv_lens_host=kv_indptr.diff(),
        max_q_len=q_len,
        max_kv_len=33,
    )
    planned, fast = recording.plans
    differing = [
        position
        for position, (one, other) in enumerate(zip(planned, fast, strict=True))
        if not (torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other)
    ]
    return {"planned": len(planned), "fast": len(fast), "differing": differing}


def sglang_fast_plan_runs(source: Path) -> dict[str, Any]:
    """On a GPU: a captured graph whose every replay sglang's sync-free plan prepares; the largest relative errors."""
    import torch
    from gpu.reference import DEVICE, attention, causal_mask

    from engines.stubs import load

    engine = load(source, "sglang.srt.layers.attention.flashinfer_backend")
    batch, q_len, heads, kv_heads, dim = 4, 4, 32, 8, 128
    rows = batch * q_len
    torch.manual_seed(1)
    q = torch.randn(rows, heads, dim, dtype=torch.bfloat16, device=DEVICE)
    k, v = (torch.randn(4096, 1, kv_heads, dim, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    qo_indptr = torch.arange(0, rows + 1, q_len, dtype=torch.int32)

    def int32(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, dtype=torch.int32, device=DEVICE)

    wrapper = engine.BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(128 << 20, dtype=torch.uint8, device=DEVICE),
        use_cuda_graph=True,
        backend="fa2",
        qo_indptr_buf=int32(batch + 1),
        paged_kv_indptr_buf=int32(batch + 1),
        paged_kv_indices_buf=int32(4096),
        paged_kv_last_page_len_buf=int32(batch),
    )
    options = {"causal": True, "q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(q)
    errors = []
    for turn, lengths in enumerate([(500, 700, 300, 900), (32, 19, 16, 33), (1000, 5, 900, 1000)]):
        kv_indptr = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
        pages = torch.randperm(4096)[: int(kv_indptr[-1])].to(torch.int32)
        layout = (qo_indptr, kv_indptr, pages, torch.ones(batch, dtype=torch.int32))
        on_device = tuple(part.to(DEVICE) for part in layout)
        if turn == 0:
            wrapper.plan(*on_device, heads, kv_heads, dim, 1, **options)
            wrapper.run(q, (k, v), out=out)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                wrapper.run(q, (k, v), out=out)
        else:
            host = {"qo_indptr_host": qo_indptr, "kv_indptr_host": kv_indptr, "kv_lens_host": kv_indptr.diff()}
            bounds = {"max_q_len": q_len, "max_kv_len": max(lengths)}
            engine.fast_prefill_plan(wrapper, *on_device, heads, kv_heads, dim, 1, **options, **host, **bounds)
        out.fill_(float("nan"))
        graph.replay()
        for request, length in enumerate(lengths):
            own = pages[kv_indptr[request] : kv_indptr[request + 1]].long().to(DEVICE)
            part = slice(request * q_len, (request + 1) * q_len)
            expected, _ = attention(q[part], k[own, 0], v[own, 0], dim**-0.5, causal_mask(q_len, length))
            errors.append(float((out[part].float() - expected).norm() / expected.norm()))
    facade = flashinfer_compat.prefill.BatchPrefillWithPagedKVCacheWrapper
    return {"errors": errors, "facade's": type(wrapper) is facade}


def sglang_sampler(source: Path) -> dict[str, Any]:
    """The functions that sglang's sampler imports, through its own lazy imports."""
    import torch

    from engines.stubs import load

    torch.compile = lambda *args, **options: lambda function: function
    others = {f"sglang.srt.utils.common.is_{machine}": lambda: False for machine in ("hip", "musa", "npu", "xpu")}
    engine = load(source, "sglang.srt.layers.sampler", "sglang.utils", values=others)
    found = {}
    for name in ("min_p_sampling_from_probs", "top_k_top_p_sampling_from_probs"):
        found[name] = getattr(engine, name)._load() is getattr(flashinfer_compat.sampling, name)
    return found


def sglang_dispatcher(source: Path) -> dict[str, Any]:
    """sglang's dispatcher, written for comm.MoeAlltoAll: what it is over, and what a round brings and launches."""
    import flashinfer
    import pytest
    import torch
    from contract.test_expert_parallel_legacy import HIDDEN, RANK, RANKS, TOP_K, record

    from engines.stubs import load

    newest = flashinfer_compat.report()["adapter"] in ("0.7.3", "0.7.4")
    kernels, _ = record(pytest.MonkeyPatch(), newest)
    torch.cuda.device_count = lambda: 8
    dispatch = "sglang.srt.layers.moe.token_dispatcher"
    values = {
        "sglang.srt.arg_groups.overrides.flashinfer_a2a_max_dispatch_tokens_per_rank": lambda tokens: 8,
        "sglang.srt.layers.dp_attention.get_is_extend_in_batch": lambda: False,
        "sglang.srt.layers.dp_attention.get_dp_global_num_tokens": lambda: None,
        "sglang.srt.layers.dp_attention.is_dp_attention_enabled": lambda: False,
        "sglang.srt.runtime_context.get_flags": lambda: SimpleNamespace(moe=SimpleNamespace(speculative_context=False)),
    }
    engine = load(source, f"{dispatch}.flashinfer", values=values)
    group = SimpleNamespace(size=lambda: RANKS, rank=lambda: RANK)
    dispatcher = engine.FlashinferDispatcher(
        group, TOP_K, num_experts=4, hidden_size=HIDDEN, enable_sp_prefill_a2a=True
    )
    dispatcher.quant_config = {}
    topk = SimpleNamespace(topk_ids=torch.tensor([[0, 1], [2, 3], [3, 0]]), topk_weights=torch.rand(3, TOP_K))
    topk.to_standard, topk.router_logits = lambda: topk, None
    received = dispatcher.dispatch(torch.ones(3, HIDDEN, dtype=torch.bfloat16), topk)
    dispatcher.combine(SimpleNamespace(hidden_states=received.hidden_states, format=None))
    return {
        "on": engine.use_flashinfer,
        "same class": engine.MoeAlltoAll is flashinfer.comm.MoeAlltoAll,
        "workspaces": dispatcher.moe_a2a.workspace.data_ptr() != dispatcher.sp_prefill_moe_a2a.workspace.data_ptr(),
        "received": list(received.hidden_states.shape),
        "launched": [name for name in kernels.launched if name != "sanitize_expert_ids"],
    }


def sglang_dispatcher_runs(source: Path) -> dict[str, Any]:
    """On a GPU: rounds of sglang's dispatcher, one rank by itself, over both of its workspaces; relative errors."""
    import torch

    from engines.stubs import load
    from flashinfer_compat.selftest import nvlink

    class TopK(NamedTuple):
        topk_weights: torch.Tensor
        topk_ids: torch.Tensor
        router_logits: torch.Tensor | None = None

    batch_is = SimpleNamespace(prefill=False)
    dispatch = "sglang.srt.layers.moe.token_dispatcher"
    values = {
        "sglang.srt.arg_groups.overrides.flashinfer_a2a_max_dispatch_tokens_per_rank": lambda tokens: 64,
        "sglang.srt.layers.dp_attention.get_is_extend_in_batch": lambda: batch_is.prefill,
        "sglang.srt.layers.dp_attention.get_dp_global_num_tokens": lambda: None,
        "sglang.srt.layers.dp_attention.is_dp_attention_enabled": lambda: False,
        "sglang.srt.layers.moe.topk.StandardTopKOutput": TopK,
        "sglang.srt.layers.moe.topk.TopKOutputChecker": SimpleNamespace(format_is_bypassed=lambda topk: False),
        "sglang.srt.runtime_context.get_flags": lambda: SimpleNamespace(moe=SimpleNamespace(speculative_context=False)),
        "sglang.srt.runtime_context.get_forward": lambda: SimpleNamespace(sp_active=True),
    }
    engine = load(source, f"{dispatch}.flashinfer", f"{dispatch}.flashinfer_utils", values=values)
    with nvlink.taken_to_be_up():
        dispatcher = engine.FlashinferDispatcher(
            alone(), Routed.top_k, num_experts=Routed.experts, hidden_size=Routed.hidden, enable_sp_prefill_a2a=True
        )
    dispatcher.quant_config = {}
    errors = []
    for tokens, batch_is.prefill in ((64, False), (7, True), (33, False), (64, True)):
        batch = Routed(tokens)
        received = dispatcher.dispatch(batch.states, TopK(batch.weights, batch.ids))
        routing = received.topk_output
        output = batch.through_experts(received.hidden_states, routing.topk_ids, routing.topk_weights)
        errors.append(batch.error(dispatcher.combine(engine.FlashinferCombineInput(output))))
    return {"errors": errors, "facade's": type(dispatcher.moe_a2a) is flashinfer_compat.comm.MoeAlltoAll}


def vllm_one_sided(source: Path) -> dict[str, Any]:
    """vLLM's one-sided class and manager, written for dispatch(max_tokens_per_rank=), on 0.7.3 and later."""
    import torch
    from contract.test_expert_parallel import HIDDEN, TOP_K, recorded

    from engines.stubs import load

    communication = recorded()
    layers = "vllm.model_executor.layers.fused_moe"
    sizes = SimpleNamespace(get_chunk_sizes_across_dp_rank=lambda: [3, 4])
    values = {
        "vllm.forward_context.get_forward_context": lambda: SimpleNamespace(dp_metadata=sizes),
        f"{layers}.utils.moe_kernel_quantize_input": lambda a1, *args, **options: (a1, None),
    }
    engine = load(
        source,
        f"{layers}.prepare_finalize.flashinfer_nvlink_one_sided",
        "vllm.distributed.device_communicators.all2all",
        "vllm.utils.flashinfer",
        values=values,
    )
    cls = engine.FlashInferNVLinkOneSidedPrepareAndFinalize
    finalize = cls.__new__(cls)
    sys.modules["vllm.utils.flashinfer"].has_flashinfer_cubin = lambda: True  # as in vllm_gates
    finalize.all2all_manager = engine.FlashInferNVLinkOneSidedManager(None)
    finalize.all2all_manager.communication = communication
    ids, weights = torch.zeros(3, TOP_K, dtype=torch.int32), torch.ones(3, TOP_K)
    hidden = torch.ones(3, HIDDEN, dtype=torch.bfloat16)
    quantization = SimpleNamespace(
        a1_gscale=None, quant_dtype=None, per_act_token_quant=False, block_shape=None, mx_alignment=0
    )
    prepared = finalize.prepare(hidden, weights, ids, 4, None, False, quantization)
    output = torch.empty_like(hidden)
    finalize.finalize(output, torch.zeros(8, HIDDEN, dtype=torch.bfloat16), weights, ids, False, None)
    return {"received": list(prepared[0].shape), "sizes": communication.module.sizes}


def vllm_gates(source: Path) -> dict[str, Any]:
    """What the gates has_flashinfer…() of vLLM's own module find there; Triton is a stub."""
    import inspect

    from engines.stubs import load

    engine = load(source, "vllm.utils.flashinfer")
    engine.has_flashinfer_cubin = lambda: True  # or it would look for a CUDA toolkit on this machine
    gates = {name: gate for name, gate in vars(engine).items() if name.startswith("has_flashinfer_")}
    del gates["has_flashinfer_jit_cache_wheels"]
    return {name: gate() for name, gate in gates.items() if not inspect.signature(gate).parameters}


def vllm_one_sided_runs(source: Path) -> dict[str, Any]:
    """On a GPU: vLLM's one-sided manager, one rank by itself, shared by two layers of which the second has it grow."""
    import torch

    from engines.stubs import load
    from flashinfer_compat.selftest import nvlink

    tokens = 64
    layers, distributed = "vllm.model_executor.layers.fused_moe", "vllm.distributed"
    group = alone()
    sizes = SimpleNamespace(get_chunk_sizes_across_dp_rank=lambda: [tokens])
    values = {
        "vllm.forward_context.get_forward_context": lambda: SimpleNamespace(dp_metadata=sizes),
        "vllm.envs.VLLM_FLASHINFER_MOE_A2A_LOW_PRECISION_COMBINE": False,
        f"{layers}.utils.moe_kernel_quantize_input": lambda a1, *args, **options: (a1, None),
        f"{distributed}.get_ep_group": lambda: SimpleNamespace(device_communicator=communicator),
    }
    communicators = f"{distributed}.device_communicators"
    engine = load(
        source,
        f"{layers}.prepare_finalize.flashinfer_nvlink_one_sided",
        f"{communicators}.all2all",
        f"{communicators}.mnnvl_compat",
        values=values,
    )
    manager = engine.FlashInferNVLinkOneSidedManager(group)
    # What the base class, a stub here, sets.
    manager.cpu_group, manager.rank, manager.world_size = group, 0, 1
    communicator = SimpleNamespace(all2all_manager=manager)
    errors = []
    quantization = SimpleNamespace(
        a1_gscale=None, quant_dtype=None, per_act_token_quant=False, block_shape=None, mx_alignment=0
    )
    for capacity, rounds in ((32, (32, 5)), (64, (64, 33))):
        with nvlink.taken_to_be_up():
            layer = engine.FlashInferNVLinkOneSidedPrepareAndFinalize(
                capacity, Routed.top_k, Routed.experts, Routed.hidden
            )
        for tokens in rounds:
            batch = Routed(tokens)
            states, _, _, ids, weights = layer.prepare(
                batch.states, batch.weights, batch.ids, batch.experts, None, False, quantization
            )
            output = torch.empty_like(batch.states)
            layer.finalize(output, batch.through_experts(states, ids, weights), weights, ids, False, None)
            errors.append(batch.error(output))
    communication = manager.get_communication()
    manager.cleanup()
    return {"errors": errors, "facade's": type(communication) is flashinfer_compat.moe_ep.NVLinkOneSidedAlltoAll}


def alone() -> Any:
    """A process group of this process alone."""
    import torch

    store = Path(tempfile.mkdtemp()) / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    return torch.distributed.group.WORLD


class Routed:
    """Tokens of one rank and where they are routed; expert `i` multiplies a row by ``i + 1``."""

    hidden, experts, top_k = 2048, 16, 4

    def __init__(self, tokens: int) -> None:
        import torch
        from gpu.reference import DEVICE

        torch.manual_seed(tokens)
        self.states = torch.randn(tokens, self.hidden, dtype=torch.bfloat16, device=DEVICE)
        self.ids = torch.rand(tokens, self.experts, device=DEVICE).argsort(1)[:, : self.top_k].int().contiguous()
        self.weights = torch.rand(tokens, self.top_k, device=DEVICE)

    @staticmethod
    def through_experts(states: Any, ids: Any, weights: Any) -> Any:
        """What the experts of the only rank make of what it received, summed with the weights."""
        return ((weights * (ids + 1)).sum(1, keepdim=True) * states.float()).bfloat16()

    def error(self, output: Any) -> float:
        """Relative, against the experts without any dispatch."""
        expected = self.through_experts(self.states.double(), self.ids, self.weights).float()
        assert output.shape == expected.shape, (output.shape, expected.shape)
        return float((output.float() - expected).norm() / expected.norm())


def main(scenario: str, source: str) -> None:
    warnings.simplefilter("ignore")
    print("\n" + json.dumps(globals()[scenario](Path(source))), flush=True)
    # Before 0.7.3 the workspaces that FlashInfer keeps have a ctypes callback for a deleter (comm/dlpack_utils.py): an
    # interpreter that ends, and clears that before them, crashes.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

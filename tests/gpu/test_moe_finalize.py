"""The finalize in a fixed order on the GPU: the CPU's bits, eagerly and in each replay of a CUDA graph."""

from __future__ import annotations

import pytest
import torch

import flashinfer_compat as flashinfer

from .reference import DEVICE

pytestmark = pytest.mark.gpu
TOKENS, TOP_K, HIDDEN = 43, 8, 7168


def unfinalized() -> list[torch.Tensor]:
    rows = torch.randn(TOKENS * TOP_K, HIDDEN).to(torch.bfloat16)
    permuted = torch.randperm(TOKENS * TOP_K).to(torch.int32)
    permuted[::7] = -1
    return [rows, torch.rand(TOKENS, TOP_K), permuted]


def test_has_the_bits_of_the_cpu() -> None:
    parts = unfinalized()
    expected = flashinfer.fused_moe.batch_invariant_finalize(parts)
    on_device = [part.to(DEVICE) for part in parts]
    assert torch.equal(flashinfer.fused_moe.batch_invariant_finalize(on_device).cpu(), expected)
    few = [on_device[0], on_device[1][:5], on_device[2][: 5 * TOP_K]]
    assert torch.equal(flashinfer.fused_moe.batch_invariant_finalize(few).cpu(), expected[:5])


def test_in_a_captured_graph() -> None:
    parts = [part.to(DEVICE) for part in unfinalized()]
    out = torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16, device=DEVICE)
    flashinfer.fused_moe.batch_invariant_finalize(parts, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        flashinfer.fused_moe.batch_invariant_finalize(parts, out=out)
    for _ in range(3):
        fresh = unfinalized()
        for held, new in zip(parts, fresh, strict=True):
            held.copy_(new)
        graph.replay()
        assert torch.equal(out.cpu(), flashinfer.fused_moe.batch_invariant_finalize(fresh))

"""What test_accesses.py runs under compute-sanitizer: ``python -m gpu.accesses NAME``, one process for each.

Tensors are allocations of their own there (PYTORCH_NO_CUDA_MEMORY_CACHING), so that reading behind one is seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import flashinfer as native
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat import sampling

from .reference import DEVICE, Batch, Cache, Captured, fast_plan, paged_wrapper, plan, run

#: Distributions, output rows and vocabulary: not a multiple of what a kernel reads at once, and more rows than
#: distributions.
DISTRIBUTIONS, ROWS, VOCABULARY = 5, 23, 4093


def planner_hint() -> None:
    """A verify step: planned with the hint, eagerly and captured, replayed for other lengths of the KV cache."""
    torch.manual_seed(20260)
    cache = Cache(3000, 1, 128, 1)
    batch = Batch(cache, [4] * 5, [257, 1024, 5, 600, 33], 4)
    mask = batch.mask()
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=DEVICE)
    eager = paged_wrapper(workspace, batch)
    plan(eager, batch, custom_mask=mask, uniform_q_len=4)
    batch.assert_right(run(eager, batch), mask=mask)

    wrapper = paged_wrapper(workspace, batch, graph=True, masked=True)
    plan(wrapper, batch, custom_mask=mask, uniform_q_len=4)
    captured = Captured(wrapper, batch.q, cache)
    for make in (plan, fast_plan):
        later = Batch(cache, [4] * 5, [31, 700, 1, 901, 260], 4)
        mask = later.mask()
        make(wrapper, later, custom_mask=mask, uniform_q_len=4)
        later.assert_right(captured.replay(later.q), mask=mask, q=later.q)


def thresholds() -> None:
    """Thresholds by distribution beside more output rows than there are distributions, and indices of both types."""
    torch.manual_seed(20260)
    probs = torch.softmax(3 * torch.randn(DISTRIBUTIONS, VOCABULARY, device=DEVICE), dim=-1)
    top_k = torch.tensor([1, 2, 40, 3, 9], dtype=torch.int32, device=DEVICE)
    top_p = torch.tensor([1e-6, 0.3, 0.9, 0.5, 1.0], device=DEVICE)
    min_p = torch.tensor([1.0, 0.3, 0.01, 0.5, 0.9], device=DEVICE)
    for dtype in (torch.int32, torch.int64):
        indices = (torch.arange(ROWS, device=DEVICE) * 3 % DISTRIBUTIONS).to(dtype)
        common: dict[str, Any] = {"indices": indices, "seed": 7, "offset": 8}
        tokens = [
            sampling.top_k_sampling_from_probs(probs, top_k, **common),
            sampling.top_p_sampling_from_probs(probs, top_p, **common),
            sampling.min_p_sampling_from_probs(probs, min_p, **common),
            sampling.top_k_top_p_sampling_from_probs(probs, top_k, top_p, **common),
            sampling.top_k_top_p_sampling_from_probs(probs, top_k, top_p, filter_apply_order="joint", **common),
        ]
        largest = probs.argmax(dim=-1)
        for drawn in tokens:
            assert drawn.shape == (ROWS,)
            assert (drawn[indices == 0] == largest[0]).all(), "the first distribution's thresholds leave one token"
    sampling.top_k_renorm_probs(probs, top_k)
    sampling.top_k_mask_logits(probs.log(), top_k)
    sampling.softmax(probs.log(), 0.5 + top_p)


def counters() -> None:
    """Counters of speculative sampling, and the buffer that FlashInfer's kernels count in."""
    torch.manual_seed(20260)
    draft = torch.softmax(torch.randn(3, 2, VOCABULARY, device=DEVICE), dim=-1)
    target = torch.softmax(torch.randn(3, 3, VOCABULARY, device=DEVICE), dim=-1)
    tokens = draft.argmax(dim=-1).int()
    accepted, emitted = (torch.zeros(3, dtype=torch.int32, device=DEVICE) for _ in range(2))
    sampling.chain_speculative_sampling(draft, tokens, target, accepted, emitted, seed=7, offset=8)
    assert ((accepted >= 0) & (accepted <= 2)).all()
    assert ((emitted >= 0) & (emitted <= 2)).all()
    buffer = flashinfer.mla.allocate_multi_ctas_kv_counters(37, 13, DEVICE)
    assert buffer.view(torch.int32).add_(1).eq(1).all()


def out_of_bounds() -> None:
    """What the checker has to see: FlashInfer's own kernel, with an index that no distribution has."""
    probs = torch.full((1, VOCABULARY), 1 / VOCABULARY, device=DEVICE)
    native.sampling.sampling_from_probs(probs, torch.full((1,), 1 << 16, dtype=torch.int32, device=DEVICE))
    torch.cuda.synchronize()


CHECKED: tuple[Callable[[], None], ...] = (planner_hint, thresholds, counters)

if __name__ == "__main__":
    {each.__name__: each for each in (*CHECKED, out_of_bounds)}[sys.argv[1]]()
    torch.cuda.synchronize()

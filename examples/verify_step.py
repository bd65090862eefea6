"""Plan and run one speculative-verify step through the facade, and compare it with dense attention.

Eight requests verify four draft tokens each, with 32 query heads over 8 KV heads: the batch that plan(uniform_q_len=)
was made for. Without FlashInfer the step runs on the reference in plain PyTorch. With FlashInfer it shows what reaches
the planner; the compiled module needs a GPU, so without one the planner is recorded and nothing is run.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

import flashinfer_compat as flashinfer

BATCH, DRAFT_TOKENS, QO_HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, PAGES = 8, 4, 32, 8, 128, 16, 64
HAS_FLASHINFER = flashinfer.flashinfer_version is not None
DEVICE = "cuda" if HAS_FLASHINFER and torch.cuda.is_available() else "cpu"
ARGUMENTS = (
    "float_workspace", "int_workspace", "pinned_workspace", "qo_indptr", "kv_indptr", "kv_lens", "total_num_rows",
    "batch_size", "num_qo_heads", "num_kv_heads", "page_size", "enable_cuda_graph", "head_dim_qk", "head_dim_vo",
    "causal", "window_left", "fixed_split_size", "disable_split_kv", "num_colocated_ctas", "uniform_q_len",
    "fixed_uniform_q_len",
)  # fmt: skip


def record_planner() -> list[tuple[Any, ...]]:
    """Keep each argument list that reaches FlashInfer's planner; without a GPU, answer in its place."""
    import flashinfer as native

    plans: list[tuple[Any, ...]] = []
    get_module = native.prefill.get_batch_prefill_module

    def recorded(*key: Any) -> SimpleNamespace:
        module = get_module(*key) if DEVICE == "cuda" else SimpleNamespace(plan=lambda *args: [0] * 15, paged_run=None)

        def plan(*args: Any) -> Any:
            plans.append(args)
            return module.plan(*args)

        return SimpleNamespace(**{**vars(module), "plan": plan})

    native.prefill.get_batch_prefill_module = recorded
    if DEVICE == "cpu":  # pinned memory needs CUDA
        empty = torch.empty
        torch.empty = lambda *args, pin_memory=False, **options: empty(*args, **options)
    return plans


def planned() -> Any:
    """The wrapper of a verify step for CUDA graphs, planned with the hint."""
    qo_indptr = torch.arange(0, (BATCH + 1) * DRAFT_TOKENS, DRAFT_TOKENS, dtype=torch.int32, device=DEVICE)
    kv_indptr = torch.arange(0, BATCH * PAGES + 1, PAGES, dtype=torch.int32, device=DEVICE)
    kv_indices = torch.arange(BATCH * PAGES, dtype=torch.int32, device=DEVICE)
    last_page_len = torch.full((BATCH,), PAGE_SIZE, dtype=torch.int32, device=DEVICE)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(128 << 20 if DEVICE == "cuda" else 1024, dtype=torch.uint8, device=DEVICE),
        use_cuda_graph=True,
        qo_indptr_buf=torch.empty_like(qo_indptr),
        paged_kv_indptr_buf=torch.empty_like(kv_indptr),
        paged_kv_indices_buf=torch.empty_like(kv_indices),
        paged_kv_last_page_len_buf=torch.empty_like(last_page_len),
        backend="fa2",
    )
    wrapper.plan(
        qo_indptr, kv_indptr, kv_indices, last_page_len, QO_HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE,
        causal=True, q_data_type=torch.bfloat16, uniform_q_len=DRAFT_TOKENS,
    )  # fmt: skip
    return wrapper


def dense_attention(query: torch.Tensor, kv_cache: torch.Tensor) -> torch.Tensor:
    """The same step in float32, every request's pages side by side; the last draft token sees all of the KV."""
    rows = query.float().view(BATCH, DRAFT_TOKENS, QO_HEADS, HEAD_DIM).transpose(1, 2)
    side_by_side = kv_cache.float().view(BATCH, PAGES, 2, PAGE_SIZE, KV_HEADS, HEAD_DIM).permute(2, 0, 4, 1, 3, 5)
    keys, values = side_by_side.flatten(3, 4)
    seen = torch.ones(DRAFT_TOKENS, PAGES * PAGE_SIZE, dtype=torch.bool, device=DEVICE)
    seen = seen.tril(PAGES * PAGE_SIZE - DRAFT_TOKENS)
    out = torch.nn.functional.scaled_dot_product_attention(rows, keys, values, attn_mask=seen, enable_gqa=True)
    return out.transpose(1, 2).reshape(query.shape)


def main() -> None:
    if not HAS_FLASHINFER:
        flashinfer.use_reference()
    report = flashinfer.report()
    print(f"FlashInfer {report['flashinfer'] or 'not installed'}, backend {report['backend']}, on {DEVICE}\n")
    for outcome in ("native", "emulated", "ignored", "unavailable"):
        features = [name for name, found in report["features"].items() if found == outcome]
        print(f"{outcome:>11}: {', '.join(features) or '-'}")

    plans = record_planner() if HAS_FLASHINFER else []
    wrapper = planned()
    for arguments in plans[:1]:
        print(f"\nThe planner got {len(arguments)} arguments:")
        for name, value in zip(ARGUMENTS, arguments, strict=False):
            print(f"{name:>20}: {tuple(value.shape) if torch.is_tensor(value) and value.numel() > 16 else value}")
    print(f"\n{flashinfer.explain('prefill.uniform_q_len')}")

    if DEVICE == "cuda" or not HAS_FLASHINFER:
        torch.manual_seed(0)
        query = torch.randn(BATCH * DRAFT_TOKENS, QO_HEADS, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE)
        kv_cache = torch.randn(BATCH * PAGES, 2, PAGE_SIZE, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE)
        output, expected = wrapper.run(query, kv_cache).float(), dense_attention(query, kv_cache)
        error = float((output - expected).norm() / expected.norm())
        print(f"\nrun() gave {tuple(output.shape)}, off dense attention in float32 by {error:.1e}")


if __name__ == "__main__":
    main()

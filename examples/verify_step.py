"""Plan one speculative-verify step through the facade, and show what reaches FlashInfer's planner.

Eight requests verify four draft tokens each, with 32 query heads over 8 KV heads: the batch that plan(uniform_q_len=)
was made for. On a machine without a GPU the compiled module is left out: its planner is recorded, not run.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

import flashinfer_compat as flashinfer

BATCH, DRAFT_TOKENS, QO_HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, PAGES = 8, 4, 32, 8, 128, 16, 64
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ARGUMENTS = (
    "float_workspace", "int_workspace", "pinned_workspace", "qo_indptr", "kv_indptr", "kv_lens", "total_num_rows",
    "batch_size", "num_qo_heads", "num_kv_heads", "page_size", "enable_cuda_graph", "head_dim_qk", "head_dim_vo",
    "causal", "window_left", "fixed_split_size", "disable_split_kv", "num_colocated_ctas", "uniform_q_len",
    "fixed_uniform_q_len",
)  # fmt: skip


def record_planner() -> list[tuple[Any, ...]]:
    """Keep each argument list that reaches the planner; without a GPU, answer in its place."""
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


def main() -> None:
    report = flashinfer.report()
    print(f"FlashInfer {report['flashinfer']}, adapter {report['adapter']}, on {DEVICE}\n")
    for outcome in ("native", "emulated", "ignored", "unavailable"):
        features = [name for name, found in report["features"].items() if found == outcome]
        print(f"{outcome:>11}: {', '.join(features) or '-'}")

    plans = record_planner()
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

    print(f"\nThe planner got {len(plans[0])} arguments:")
    for name, value in zip(ARGUMENTS, plans[0], strict=False):
        print(f"{name:>20}: {tuple(value.shape) if torch.is_tensor(value) and value.numel() > 16 else value}")
    print(f"\n{flashinfer.explain('prefill.uniform_q_len')}")

    if DEVICE == "cuda":
        query = torch.randn(BATCH * DRAFT_TOKENS, QO_HEADS, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE)
        kv_cache = torch.randn(BATCH * PAGES, 2, PAGE_SIZE, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE)
        output = wrapper.run(query, kv_cache)
        print(f"\nrun() gave {tuple(output.shape)}, mean {output.float().mean().item():+.4f}")


if __name__ == "__main__":
    main()

"""`flashinfer.cascade`: attention over parts of the KV, merged by their log-sum-exps (base 2)."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidArgument
from .checks import Lacking
from .paged_prefill import BatchPrefillWithPagedKVCacheWrapper
from .precision import wide


def merge_state(
    v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The attention over both parts: outputs (rows, heads, dim), log-sum-exps (rows, heads) in base 2.

    Returns an output of the dtype of `v_a` and a log-sum-exp, float32. Two empty parts (-inf) give 0 and -inf.
    """
    _check_state("b", v_b, s_b, v_a.shape)
    return merge_states(torch.stack([v_a, v_b], dim=1), torch.stack([s_a, s_b], dim=1))


def merge_state_in_place(
    v: torch.Tensor,
    s: torch.Tensor,
    v_other: torch.Tensor,
    s_other: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> None:
    """`merge_state` into `v` and `s`, for the rows where `mask` (rows,) is true; all without it.

    A log-sum-exp `s` of another dtype than float32 stays as it is, as FlashInfer leaves it.
    """
    _check_state("other", v_other, s_other, v.shape)
    merged, summed = merge_state(v, s, v_other, s_other)
    rows = slice(None) if mask is None else mask.bool()
    v[rows] = merged[rows]
    if s.dtype == torch.float32:
        s[rows] = summed[rows]


def merge_states(v: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The attention over all parts: `v` (rows, parts, heads, dim), `s` (rows, parts, heads) in base 2.

    Returns an output (rows, heads, dim) of the dtype of `v` and a log-sum-exp (rows, heads), float32.
    """
    if v.ndim != 4 or s.shape != v.shape[:3]:
        raise InvalidArgument(
            f"v and s have shapes {tuple(v.shape)} and {tuple(s.shape)}; they must be (rows, parts, heads, dim) and "
            "(rows, parts, heads)"
        )
    sums = wide(s)
    largest = sums.amax(dim=1, keepdim=True)
    largest = largest.masked_fill(largest == -torch.inf, 0.0)
    weights = torch.exp2(sums - largest)
    total = weights.sum(dim=1)
    merged = torch.einsum("rph,rphd->rhd", weights, wide(v)) / total.clamp(min=torch.finfo(total.dtype).tiny)[..., None]
    return merged.to(v.dtype), (total.log2() + largest.squeeze(1)).float()


class MultiLevelCascadeAttentionWrapper(Lacking):
    """Attention over levels of shared prefixes: a paged prefill for each level, merged."""

    def __init__(
        self,
        num_levels: int,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf_arr: list[torch.Tensor] | None = None,
        paged_kv_indptr_buf_arr: list[torch.Tensor] | None = None,
        paged_kv_indices_buf_arr: list[torch.Tensor] | None = None,
        paged_kv_last_page_len_buf_arr: list[torch.Tensor] | None = None,
    ) -> None:
        """One list entry for each level where CUDA graphs are used; see the paged prefill wrapper."""
        self._use_cuda_graph = use_cuda_graph
        buffers = zip(
            *(
                given or [None] * num_levels
                for given in (
                    qo_indptr_buf_arr,
                    paged_kv_indptr_buf_arr,
                    paged_kv_indices_buf_arr,
                    paged_kv_last_page_len_buf_arr,
                )
            ),
            strict=True,
        )
        self._levels = [
            BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout, use_cuda_graph, *level)
            for level in buffers
        ]

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._use_cuda_graph

    def reset_workspace_buffer(
        self, float_workspace_buffer: torch.Tensor, int_workspace_buffers: list[torch.Tensor]
    ) -> None:
        for level, buffer in zip(self._levels, int_workspace_buffers, strict=True):
            level.reset_workspace_buffer(float_workspace_buffer, buffer)

    def plan(
        self,
        qo_indptr_arr: list[torch.Tensor],
        paged_kv_indptr_arr: list[torch.Tensor],
        paged_kv_indices_arr: list[torch.Tensor],
        paged_kv_last_page_len: list[torch.Tensor],
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: str | torch.dtype = "float16",
        kv_data_type: str | torch.dtype | None = None,
    ) -> None:
        """As the paged prefill wrapper's, a list entry for each level; only the last level is causal."""
        levels = zip(
            self._levels, qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len, strict=True
        )
        for wrapper, qo_indptr, page_indptr, pages, last_page_len in levels:
            wrapper.plan(
                qo_indptr,
                page_indptr,
                pages,
                last_page_len,
                num_qo_heads,
                num_kv_heads,
                head_dim,
                page_size,
                causal=causal and wrapper is self._levels[-1],
                pos_encoding_mode=pos_encoding_mode,
                use_fp16_qk_reduction=use_fp16_qk_reduction,
                sm_scale=sm_scale,
                window_left=window_left,
                logits_soft_cap=logits_soft_cap,
                rope_scale=rope_scale,
                rope_theta=rope_theta,
                q_data_type=q_data_type,
                kv_data_type=kv_data_type,
            )

    begin_forward = plan

    def run(self, q: torch.Tensor, paged_kv_cache: Any) -> torch.Tensor:
        """The output (rows, heads, dim) of `q` over all levels; the cache is as the paged prefill wrapper takes it."""
        states = [level.run(q, paged_kv_cache, return_lse=True) for level in self._levels]
        outputs, sums = zip(*states, strict=True)
        return merge_states(torch.stack(outputs, dim=1), torch.stack(sums, dim=1))[0]

    forward = run

    def end_forward(self) -> None:
        """Nothing to release."""


def _check_state(which: str, v: torch.Tensor, s: torch.Tensor, shape: torch.Size) -> None:
    if v.shape != shape or s.shape != shape[:2]:
        raise InvalidArgument(
            f"v_{which} and s_{which} have shapes {tuple(v.shape)} and {tuple(s.shape)}; they must be {tuple(shape)} "
            f"and {tuple(shape[:2])}"
        )

"""`flashinfer.decode`: attention of one token a request, or of a few, over a paged KV cache."""

from __future__ import annotations

import warnings
from functools import partialmethod
from typing import Any

import torch

from ..errors import InvalidArgument, InvalidPlan, UnsupportedArgument
from .checks import refuse
from .kv_cache import PagedKVCache
from .paged_prefill import BatchPrefillWithPagedKVCacheWrapper
from .single import single_decode_with_kv_cache
from .wrapper import AttentionWrapper, graph_buffers

__all__ = [
    "BatchDecodeWithPagedKVCacheWrapper",
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper",
    "fast_decode_plan",
    "single_decode_with_kv_cache",
]

#: What computes several tokens a request, besides tensor-core decode.
_SEVERAL_TOKENS = ("trtllm-gen", "cute-dsl", "cudnn")


class BatchDecodeWithPagedKVCacheWrapper(AttentionWrapper):
    """Attention of ``q_len_per_req`` tokens of each request over its paged KV, which ends with them."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: torch.Tensor | None = None,
        paged_kv_indices_buffer: torch.Tensor | None = None,
        paged_kv_last_page_len_buffer: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
        jit_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """As of the paged prefill wrapper. `use_tensor_cores` says which plans FlashInfer takes; the result is one."""
        self._made(float_workspace_buffer, kv_layout, use_cuda_graph, backend, jit_args=jit_args, jit_kwargs=jit_kwargs)
        self._use_tensor_cores = use_tensor_cores or backend in _SEVERAL_TOKENS
        buffers: dict[str, Any] = {}
        if use_cuda_graph:
            pages, indices, last = graph_buffers(
                paged_kv_indptr_buffer=paged_kv_indptr_buffer,
                paged_kv_indices_buffer=paged_kv_indices_buffer,
                paged_kv_last_page_len_buffer=paged_kv_last_page_len_buffer,
            )
            self._fixed_batch_size = len(last)
            if len(pages) != len(last) + 1:
                raise InvalidPlan(f"buffers for {len(pages) - 1} and {len(last)} requests")
            buffers = {
                "qo_indptr_buf": torch.zeros_like(pages),
                "paged_kv_indptr_buf": pages,
                "paged_kv_indices_buf": indices,
                "paged_kv_last_page_len_buf": last,
            }
        # One token a request is a prefill of one row.
        self._rows = BatchPrefillWithPagedKVCacheWrapper(
            float_workspace_buffer, kv_layout, use_cuda_graph, backend=backend, **buffers
        )
        self._q_len_per_req: int | None = None

    @property
    def use_tensor_cores(self) -> bool:
        return self._use_tensor_cores

    @property
    def resolved_backend(self) -> str:
        """The backend that was asked for: the reference has one."""
        return self._backend

    @property
    def _paged_kv_indptr_buf(self) -> Any:
        return self._rows._paged_kv_indptr_buf

    @property
    def _paged_kv_indices_buf(self) -> Any:
        return self._rows._paged_kv_indices_buf

    @property
    def _paged_kv_last_page_len_buf(self) -> Any:
        return self._rows._paged_kv_last_page_len_buf

    def workspace_size(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: str | torch.dtype | None = "float16",
        kv_data_type: str | torch.dtype | None = None,
        o_data_type: str | torch.dtype | None = None,
        data_type: str | torch.dtype | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        block_tables: torch.Tensor | None = None,
        seq_lens: torch.Tensor | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        q_len_per_req: int = 1,
    ) -> tuple[int, int]:
        """Bytes of the float and the integer workspace that such a plan needs: none."""
        return 0, 0

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *deprecated_positional_args: Any,
        **kwargs: Any,
    ) -> None:
        """The page table of a batch and the kind of attention; keywords are those of `_plan_impl`.

        `indptr` (requests + 1,) counts pages, `indices` are pages, `last_page_len` (requests,) tokens in the last page.
        ``q_len_per_req`` above 1 is causal among a request's own tokens, which its KV ends with. All else is as of the
        paged prefill wrapper. The facade takes the keywords by position too, with a `DeprecationWarning`.
        """
        if deprecated_positional_args:
            raise UnsupportedArgument("plan() takes what comes behind page_size by keyword")
        self._plan_impl(indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, **kwargs)

    def _plan_impl(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        window_right: int = 0,
        logits_soft_cap: float | None = None,
        q_data_type: str | torch.dtype | None = "float16",
        kv_data_type: str | torch.dtype | None = None,
        o_data_type: str | torch.dtype | None = None,
        data_type: str | torch.dtype | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        non_blocking: bool = True,
        block_tables: torch.Tensor | None = None,
        seq_lens: torch.Tensor | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        q_len_per_req: int = 1,
        is_causal: bool | None = None,
        use_token_head_sf: bool = False,
    ) -> None:
        refuse("plan", window_right=window_right or None)
        if q_len_per_req < 1:
            raise InvalidPlan(f"q_len_per_req is {q_len_per_req}; it must be at least 1")
        causal = q_len_per_req > 1
        if is_causal not in (None, causal):
            raise NotImplementedError(f"is_causal={is_causal} with q_len_per_req={q_len_per_req}")
        self._use_tensor_cores = self._use_tensor_cores or use_token_head_sf
        if causal and not self.use_tensor_cores:
            raise InvalidPlan("q_len_per_req > 1 needs use_tensor_cores=True, or a backend with several tokens")
        if fixed_split_size not in (None, -1) and not self.use_tensor_cores:
            raise InvalidPlan("fixed_split_size needs use_tensor_cores=True")
        if self._use_cuda_graph and self._q_len_per_req not in (None, q_len_per_req):
            raise InvalidPlan(
                f"q_len_per_req is {q_len_per_req}; this CUDA-graph wrapper was planned with {self._q_len_per_req}"
            )
        rows = torch.arange(len(last_page_len) + 1, dtype=torch.int32) * q_len_per_req
        self._rows.plan(
            rows, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
            causal=causal, pos_encoding_mode=pos_encoding_mode, sm_scale=sm_scale, window_left=window_left,
            logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta,
            q_data_type=q_data_type or data_type or "float16", kv_data_type=kv_data_type or data_type,
            o_data_type=o_data_type, seq_lens=seq_lens, use_token_head_sf=use_token_head_sf,
        )  # fmt: skip
        plan = self._rows._plan
        assert plan is not None
        if causal and min(plan.kv_lens, default=q_len_per_req) < q_len_per_req:
            self._rows._plan = None
            raise InvalidPlan(f"q_len_per_req={q_len_per_req}, but a request has {min(plan.kv_lens)} tokens of KV")
        self._plan, self._plan_info, self._q_len_per_req = plan, plan, q_len_per_req
        self._batch_size, self._num_qo_heads, self._num_kv_heads = len(plan.q_lens), num_qo_heads, num_kv_heads

    begin_forward = plan

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: PagedKVCache,
        *args: Any,
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
        window_left: int | None = None,
        sinks: torch.Tensor | None = None,
        q_len_per_req: int | None = None,
        skip_softmax_threshold_scale_factor: float | None = None,
        kv_cache_sf: Any = None,
    ) -> Any:
        """The output of `q`, both (requests * q_len_per_req, heads, head_dim); as of the paged prefill wrapper."""
        if q_len_per_req is not None:
            warnings.warn("q_len_per_req is an argument of plan()", DeprecationWarning, stacklevel=2)
            if self._plan is not None and q_len_per_req != self._q_len_per_req:
                raise InvalidArgument(f"q_len_per_req is {q_len_per_req}; plan() was told {self._q_len_per_req}")
        return self._rows.run(
            q, paged_kv_cache, *args,
            q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, out=out, lse=lse, return_lse=return_lse,
            window_left=window_left, sinks=sinks, kv_cache_sf=kv_cache_sf,
            skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
        )  # fmt: skip

    run_return_lse = partialmethod(run, return_lse=True)

    def forward(
        self,
        q: torch.Tensor,
        paged_kv_cache: PagedKVCache,
        pos_encoding_mode: str = "NONE",
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Any:
        """`run` with the kind of attention given here in place of the plan's, which it becomes. Deprecated."""
        self._rows._change_kind(
            causal=(self._q_len_per_req or 1) > 1, pos_encoding_mode=pos_encoding_mode, window_left=window_left,
            logits_soft_cap=logits_soft_cap, sm_scale=sm_scale, rope_scale=rope_scale, rope_theta=rope_theta,
        )  # fmt: skip
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)

    def forward_return_lse(
        self,
        q: torch.Tensor,
        paged_kv_cache: PagedKVCache,
        pos_encoding_mode: str = "NONE",
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Any:
        """`forward`, with the log-sum-exp. Deprecated."""
        self._rows._change_kind(
            causal=(self._q_len_per_req or 1) > 1, pos_encoding_mode=pos_encoding_mode, window_left=window_left,
            logits_soft_cap=logits_soft_cap, sm_scale=sm_scale, rope_scale=rope_scale, rope_theta=rope_theta,
        )  # fmt: skip
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=True)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """The decode wrapper with ``use_cuda_graph=True``."""

    def __init__(
        self,
        workspace_buffer: torch.Tensor,
        indptr_buffer: torch.Tensor,
        indices_buffer: torch.Tensor,
        last_page_len_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_tensor_cores: bool = False,
    ) -> None:
        super().__init__(
            workspace_buffer, kv_layout, True, use_tensor_cores, indptr_buffer, indices_buffer, last_page_len_buffer
        )


def fast_decode_plan(
    self: BatchDecodeWithPagedKVCacheWrapper,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    last_page_len: torch.Tensor,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim: int,
    page_size: int,
    pos_encoding_mode: str = "NONE",
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    q_data_type: str | torch.dtype | None = None,
    kv_data_type: str | torch.dtype | None = None,
    data_type: str | torch.dtype | None = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    non_blocking: bool = True,
    fixed_split_size: int | None = None,
    disable_split_kv: bool = False,
    q_len_per_req: int = 1,
    global_override_indptr_cpu: torch.Tensor | None = None,
) -> None:
    """``self.plan(…)`` as engines bind it; `global_override_indptr_cpu` is `indptr` on the CPU."""
    self._plan_impl(
        indptr if global_override_indptr_cpu is None else global_override_indptr_cpu, indices, last_page_len,
        num_qo_heads, num_kv_heads, head_dim, page_size,
        pos_encoding_mode=pos_encoding_mode, window_left=window_left, logits_soft_cap=logits_soft_cap,
        q_data_type=q_data_type, kv_data_type=kv_data_type, data_type=data_type, sm_scale=sm_scale,
        rope_scale=rope_scale, rope_theta=rope_theta, fixed_split_size=fixed_split_size,
        disable_split_kv=disable_split_kv, q_len_per_req=q_len_per_req,
    )  # fmt: skip

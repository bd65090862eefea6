"""Prefill over ragged keys and values."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import torch

from ..bridges.layout import host_indptr
from ..errors import InvalidArgument, InvalidPlan
from .batch import Masks, Plan, deliver, dtypes, kind_of, product, run_batch
from .checks import check_planned_dtypes, is_fp8, refuse
from .precision import wide
from .wrapper import AttentionWrapper, graph_buffers, token_head_scales


class BatchPrefillWithRaggedKVCacheWrapper(AttentionWrapper):
    """Attention of a batch of ragged queries over ragged keys and values."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        kv_indptr_buf: torch.Tensor | None = None,
        custom_mask_buf: torch.Tensor | None = None,
        mask_indptr_buf: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
        jit_kwargs: dict[str, Any] | None = None,
        variant_owns_mask: bool = False,
    ) -> None:
        """As of the paged wrapper."""
        self._made(
            float_workspace_buffer, kv_layout, use_cuda_graph, backend,
            jit_args=jit_args, jit_kwargs=jit_kwargs, variant_owns_mask=variant_owns_mask,
        )  # fmt: skip
        self._fixed_batch_size = 0
        if use_cuda_graph:
            rows, tokens = graph_buffers(qo_indptr_buf=qo_indptr_buf, kv_indptr_buf=kv_indptr_buf)
            self._fixed_batch_size = len(rows) - 1
            if len(tokens) != len(rows):
                raise InvalidPlan(f"buffers for {len(rows) - 1} and {len(tokens) - 1} requests")
        self._qo_indptr_buf, self._kv_indptr_buf = qo_indptr_buf, kv_indptr_buf
        self._custom_mask_buf, self._mask_indptr_buf = custom_mask_buf, mask_indptr_buf

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: str | torch.dtype = "float16",
        kv_data_type: str | torch.dtype | None = None,
        o_data_type: str | torch.dtype | None = None,
        non_blocking: bool = True,
        prefix_len_ptr: torch.Tensor | None = None,
        token_pos_in_items_ptr: torch.Tensor | None = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: torch.Tensor | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        seq_lens: torch.Tensor | None = None,
        seq_lens_q: torch.Tensor | None = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        v_indptr: torch.Tensor | None = None,
        o_indptr: torch.Tensor | None = None,
        qo_indptr_cpu: torch.Tensor | None = None,
        kv_indptr_cpu: torch.Tensor | None = None,
        uniform_q_len: int | None = None,
        use_token_head_sf: bool = False,
    ) -> None:
        """The lengths of a batch, (requests + 1,) each in tokens, and the kind of attention as of the paged wrapper.

        `qo_indptr_cpu` and `kv_indptr_cpu` are the same on the CPU. `v_indptr` and `o_indptr`, which only cuDNN reads,
        raise `UnsupportedArgument`.
        """
        refuse(
            "plan",
            prefix_len_ptr=prefix_len_ptr,
            token_pos_in_items_ptr=token_pos_in_items_ptr,
            max_item_len_ptr=max_item_len_ptr,
            v_indptr=v_indptr,
            o_indptr=o_indptr,
        )
        q_starts, kv_starts = host_indptr(qo_indptr, kv_indptr, qo_indptr_cpu, kv_indptr_cpu)
        q_dtype, kv_dtype, o_dtype = dtypes(q_data_type, kv_data_type, o_data_type)
        plan = Plan(
            kind=kind_of(
                causal=causal, pos_encoding_mode=pos_encoding_mode, sm_scale=sm_scale, window_left=window_left,
                logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta,
            ),
            q_lens=q_starts.diff().tolist(),
            kv_lens=kv_starts.diff().tolist(),
            num_qo_heads=num_qo_heads,
            num_kv_heads=num_kv_heads,
            head_dim_qk=head_dim_qk,
            head_dim_vo=head_dim_vo or head_dim_qk,
            q_dtype=q_dtype,
            kv_dtype=kv_dtype,
            o_dtype=o_dtype,
            token_head_scales=use_token_head_sf,
        )  # fmt: skip
        masks = Masks.of(custom_mask, packed_custom_mask, plan, self.device)
        given = {"_qo_indptr_buf": qo_indptr, "_kv_indptr_buf": kv_indptr}
        self._accept(
            plan, masks, {name: (getattr(self, name), tensor) for name, tensor in given.items()}, uniform_q_len
        )
        if not self._use_cuda_graph:
            self._qo_indptr_buf, self._kv_indptr_buf = qo_indptr.to(self.device), kv_indptr.to(self.device)

    begin_forward = plan

    def run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *args: Any,
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        o_scale: float | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        lse_base: str = "log2",
        lse_layout: str = "NH",
        enable_pdl: bool | None = None,
        kv_cache_sf: Any = None,
    ) -> Any:
        """The output of `q` (rows, heads, head_dim_qk) over `k` and `v` (tokens, kv_heads, dim), HND: heads in front.

        `k_scale` and `v_scale` count where the KV is fp8 and the queries are not, as FlashInfer's FA2 and FA3 have it;
        `q_scale` and `o_scale`, which those do not read, raise `UnsupportedArgument`. All else is as of the paged
        wrapper.
        """
        plan = self._planned(q)
        refuse("run", args=args or None, q_scale=q_scale, o_scale=o_scale)
        refuse("run", **({} if plan.token_head_scales else {"kv_cache_sf": kv_cache_sf}))
        check_planned_dtypes(q, k, plan.q_dtype, plan.kv_dtype)
        keys, values = (part if self._kv_layout == "NHD" else part.transpose(0, 1) for part in (k, v))
        for name, part, dim in (("k", keys, plan.head_dim_qk), ("v", values, plan.head_dim_vo)):
            if tuple(part.shape) != (sum(plan.kv_lens), plan.num_kv_heads, dim):
                raise InvalidArgument(
                    f"{name} has shape {tuple(part.shape)} in NHD; it must be "
                    f"{(sum(plan.kv_lens), plan.num_kv_heads, dim)}"
                )
        if plan.token_head_scales:
            scales = token_head_scales(kv_cache_sf, (k, v))
            by_token = (part if self._kv_layout == "NHD" else part.T for part in scales)
            keys, values = (
                wide(part) * wide(scale).unsqueeze(-1) for part, scale in zip((keys, values), by_token, strict=True)
            )
        kv_lens = list(plan.kv_lens)
        pairs = list(zip(keys.split(kv_lens), values.split(kv_lens), strict=True))
        scaled = is_fp8(k.dtype) and not is_fp8(q.dtype)
        result = run_batch(
            plan, q, pairs.__getitem__,
            scale=product(k_scale if scaled else None), v_scale=product(v_scale if scaled else None),
            masks=self._masks.read(plan),
        )  # fmt: skip
        o_dtype = plan.o_dtype if plan.o_dtype.itemsize > 1 else torch.bfloat16 if is_fp8(q.dtype) else q.dtype
        return deliver(
            *result, into=out, lse_into=lse, dtype=o_dtype, return_lse=return_lse, lse_base=lse_base,
            lse_layout=lse_layout,
        )  # fmt: skip

    run_return_lse = partialmethod(run, return_lse=True)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Any:
        """`run` with the kind of attention given here in place of the plan's, which it becomes. Deprecated."""
        self._change_kind(
            causal=causal, pos_encoding_mode=pos_encoding_mode, window_left=window_left, sm_scale=sm_scale,
            logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta,
        )  # fmt: skip
        return self.run(q, k, v)

    def forward_return_lse(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Any:
        """`forward`, with the log-sum-exp. Deprecated."""
        self._change_kind(
            causal=causal, pos_encoding_mode=pos_encoding_mode, window_left=window_left, sm_scale=sm_scale,
            logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta,
        )  # fmt: skip
        return self.run(q, k, v, return_lse=True)

"""Prefill over a paged KV cache, and its plan from host tensors."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import torch

from ..bridges.layout import reserve_total_num_rows
from ..bridges.trtllm import refuse_noncausal_paged_window
from ..errors import InvalidArgument, InvalidPlan
from .batch import Masks, Plan, deliver, dtypes, kind_of, product, run_batch
from .checks import check_planned_dtypes, check_tensor, refuse
from .kv_cache import PagedKVCache, check_pages, check_room, gathered, lengths, unpacked
from .precision import wide
from .wrapper import AttentionWrapper, graph_buffers, token_head_scales


class BatchPrefillWithPagedKVCacheWrapper(AttentionWrapper):
    """Attention of a batch of ragged queries over a paged KV cache: `plan` the lengths, `run` any number of times."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        paged_kv_indptr_buf: torch.Tensor | None = None,
        paged_kv_indices_buf: torch.Tensor | None = None,
        paged_kv_last_page_len_buf: torch.Tensor | None = None,
        custom_mask_buf: torch.Tensor | None = None,
        mask_indptr_buf: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
        jit_kwargs: dict[str, Any] | None = None,
        variant_owns_mask: bool = False,
        max_total_num_rows: int | None = None,
    ) -> None:
        """`float_workspace_buffer`, of any size, says the device. `backend` is any of FlashInfer's: one result.

        With `use_cuda_graph` plans are copied into the buffers, which fix the batch size, as FlashInfer does; graphs
        cannot be captured. Custom JIT modules (`jit_args`, `variant_owns_mask`) raise `UnsupportedArgument`.
        """
        self._made(
            float_workspace_buffer, kv_layout, use_cuda_graph, backend,
            jit_args=jit_args, jit_kwargs=jit_kwargs, variant_owns_mask=variant_owns_mask,
        )  # fmt: skip
        reserve_total_num_rows(self, max_total_num_rows, use_cuda_graph)
        self._fixed_batch_size = 0
        if use_cuda_graph:
            rows, pages, _, last = graph_buffers(
                qo_indptr_buf=qo_indptr_buf,
                paged_kv_indptr_buf=paged_kv_indptr_buf,
                paged_kv_indices_buf=paged_kv_indices_buf,
                paged_kv_last_page_len_buf=paged_kv_last_page_len_buf,
            )
            self._fixed_batch_size = len(rows) - 1
            held = len(pages) - 1, len(last)
            if held != (self._fixed_batch_size,) * 2:
                raise InvalidPlan(f"buffers for {self._fixed_batch_size}, {held[0]} and {held[1]} requests")
        self._qo_indptr_buf, self._paged_kv_indptr_buf = qo_indptr_buf, paged_kv_indptr_buf
        self._paged_kv_indices_buf, self._paged_kv_last_page_len_buf = paged_kv_indices_buf, paged_kv_last_page_len_buf
        self._custom_mask_buf, self._mask_indptr_buf = custom_mask_buf, mask_indptr_buf

    def workspace_size(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
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
        o_data_type: str | torch.dtype | None = None,
        prefix_len_ptr: torch.Tensor | None = None,
        token_pos_in_items_ptr: torch.Tensor | None = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: torch.Tensor | None = None,
        seq_lens: torch.Tensor | None = None,
        seq_lens_q: torch.Tensor | None = None,
        block_tables: torch.Tensor | None = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        uniform_q_len: int | None = None,
    ) -> tuple[int, int]:
        """Bytes of the float and the integer workspace that such a plan needs: none."""
        return 0, 0

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
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
        o_data_type: str | torch.dtype | None = None,
        non_blocking: bool = True,
        prefix_len_ptr: torch.Tensor | None = None,
        token_pos_in_items_ptr: torch.Tensor | None = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: torch.Tensor | None = None,
        seq_lens: torch.Tensor | None = None,
        seq_lens_q: torch.Tensor | None = None,
        block_tables: torch.Tensor | None = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        uniform_q_len: int | None = None,
        use_token_head_sf: bool = False,
    ) -> None:
        """The lengths and the page table of a batch, and the kind of attention.

        Args:
            qo_indptr: (requests + 1,), query rows; paged_kv_indptr: (requests + 1,), pages; paged_kv_indices: pages;
                paged_kv_last_page_len: (requests,), tokens in the last page. Integers, on any device.
            head_dim_vo: of values and output, `head_dim_qk` by default.
            custom_mask: bool, flat, each request's (rows, kv_len) behind one another; takes the place of `causal`.
                packed_custom_mask: its bits, for a batch of one request alone.
            sm_scale: 1 / sqrt(head_dim_qk) by default. window_left: tokens seen behind the row's own, all if below 0.
                logits_soft_cap: c, for c * tanh(logits / c).
            pos_encoding_mode: "NONE" or "ROPE_LLAMA" with `rope_scale` and `rope_theta`.
            q_data_type, kv_data_type, o_data_type: dtypes or their names; the latter two default to the first.
            seq_lens: (requests,), KV tokens, instead of those that the page table says.

        What only tunes kernels (splits, `uniform_q_len`, `block_tables`, maxima) changes nothing; a CUDA-graph wrapper
        warns of a `uniform_q_len` that does not describe the batch. Multi-item scoring and ALiBi raise
        `UnsupportedArgument`; what does not fit together `InvalidPlan`.
        """
        refuse_noncausal_paged_window(self, causal, window_left)
        refuse(
            "plan",
            prefix_len_ptr=prefix_len_ptr,
            token_pos_in_items_ptr=token_pos_in_items_ptr,
            max_item_len_ptr=max_item_len_ptr,
        )
        page_starts = paged_kv_indptr.tolist()
        q_dtype, kv_dtype, o_dtype = dtypes(q_data_type, kv_data_type, o_data_type)
        if len(paged_kv_last_page_len) != len(page_starts) - 1 or len(qo_indptr) != len(page_starts):
            raise InvalidPlan(
                f"qo_indptr, paged_kv_indptr and paged_kv_last_page_len have {len(qo_indptr)}, {len(page_starts)} and "
                f"{len(paged_kv_last_page_len)} entries"
            )
        if page_starts[-1] > len(paged_kv_indices):
            raise InvalidPlan(
                f"paged_kv_indptr counts {page_starts[-1]} pages; there are {len(paged_kv_indices)} indices"
            )
        kv_lens = lengths(page_starts, paged_kv_last_page_len.tolist(), page_size)
        plan = Plan(
            kind=kind_of(
                causal=causal, pos_encoding_mode=pos_encoding_mode, sm_scale=sm_scale, window_left=window_left,
                logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta,
            ),
            q_lens=qo_indptr.diff().tolist(),
            kv_lens=kv_lens if seq_lens is None else seq_lens.flatten().tolist(),
            num_qo_heads=num_qo_heads,
            num_kv_heads=num_kv_heads,
            head_dim_qk=head_dim_qk,
            head_dim_vo=head_dim_vo or head_dim_qk,
            q_dtype=q_dtype,
            kv_dtype=kv_dtype,
            o_dtype=o_dtype,
            token_head_scales=use_token_head_sf,
            page_size=page_size,
        )  # fmt: skip
        check_room(plan.kv_lens, page_starts, page_size)
        masks = Masks.of(custom_mask, packed_custom_mask, plan, self.device)
        given = {
            "_qo_indptr_buf": qo_indptr,
            "_paged_kv_indptr_buf": paged_kv_indptr,
            "_paged_kv_indices_buf": paged_kv_indices,
            "_paged_kv_last_page_len_buf": paged_kv_last_page_len,
        }
        self._accept(
            plan, masks, {name: (getattr(self, name), tensor) for name, tensor in given.items()}, uniform_q_len
        )
        if not self._use_cuda_graph:
            for name, tensor in given.items():
                setattr(self, name, tensor.to(self.device))
        self._page_starts = page_starts

    begin_forward = plan

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: PagedKVCache,
        *args: Any,
        q_scale: float | torch.Tensor | None = None,
        k_scale: float | torch.Tensor | None = None,
        v_scale: float | torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        lse_base: str = "log2",
        lse_layout: str = "NH",
        enable_pdl: bool | None = None,
        window_left: int | None = None,
        sinks: torch.Tensor | None = None,
        kv_cache_sf: Any = None,
        skip_softmax_threshold_scale_factor: float | None = None,
        use_fp16_softmax: bool | None = None,
        uses_spcompress: bool | None = None,
    ) -> Any:
        """The output (rows, heads, head_dim_vo) of the queries `q` (rows, heads, head_dim_qk).

        Args:
            paged_kv_cache: (pages, 2, page_size, kv_heads, dim) in NHD, (pages, 2, kv_heads, page_size, dim) in HND, or
                a tuple of keys and values without the second dimension.
            q_scale, k_scale: multiply the logits, v_scale the output; numbers or tensors of one.
            out, lse: written and returned where given. return_lse: also the log-sum-exp, float32, (rows, heads) in base
                2; ``lse_base="ln"`` for base e, ``lse_layout="HN"`` for (heads, rows).
            window_left: as planned, or None.
            sinks: (heads,), float32, logits of a token without value that every row sees.
            kv_cache_sf: for ``plan(use_token_head_sf=True)``, float32 scales of keys and values, a tuple shaped as the
                cache without its last dimension. NVFP4 raises `UnsupportedArgument`.

        Raises `InvalidArgument` for shapes and dtypes other than planned.
        """
        plan = self._planned(q)
        refuse(
            "run",
            args=args or None,
            skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
            use_fp16_softmax=use_fp16_softmax,
            uses_spcompress=uses_spcompress,
            **{"sinks with return_lse": sinks is not None and return_lse},
            **({} if plan.token_head_scales else {"kv_cache_sf": kv_cache_sf}),
        )
        if window_left is not None and window_left != plan.kind.window_left:
            raise InvalidArgument(f"window_left is {window_left}; plan() was told {plan.kind.window_left}")
        pools = unpacked(paged_kv_cache, self._kv_layout)
        check_planned_dtypes(q, pools[0], plan.q_dtype, plan.kv_dtype)
        _check_pools(pools, plan, self._kv_layout)
        scales = token_head_scales(kv_cache_sf, pools) if plan.token_head_scales else None
        indices, starts = self._page_indices(), self._page_starts
        check_pages(indices[: starts[-1]], pools[0].size(0))

        def read(request: int) -> tuple[torch.Tensor, torch.Tensor]:
            pages = indices[starts[request] : starts[request + 1]].to(q.device)
            kv_len = plan.kv_lens[request]
            pair = [gathered(pool, pages, kv_len, self._kv_layout) for pool in pools]
            if scales is not None:
                by_token = [gathered(scale, pages, kv_len, self._kv_layout) for scale in scales]
                pair = [wide(part) * wide(scale).unsqueeze(-1) for part, scale in zip(pair, by_token, strict=True)]
            return pair[0], pair[1]

        result = run_batch(
            plan, q, read,
            scale=product(q_scale, k_scale), v_scale=product(v_scale), masks=self._masks.read(plan), sinks=sinks,
        )  # fmt: skip
        return deliver(
            *result, into=out, lse_into=lse, dtype=plan.o_dtype, return_lse=return_lse, lse_base=lse_base,
            lse_layout=lse_layout,
        )  # fmt: skip

    run_return_lse = partialmethod(run, return_lse=True)

    def _page_indices(self) -> torch.Tensor:
        """Those of the plan, or what a CUDA-graph wrapper's buffer holds by now."""
        indices = self._paged_kv_indices_buf
        assert indices is not None
        return indices

    def forward(
        self,
        q: torch.Tensor,
        paged_kv_cache: PagedKVCache,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        k_scale: float | None = None,
        v_scale: float | None = None,
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
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale)

    def forward_return_lse(
        self,
        q: torch.Tensor,
        paged_kv_cache: PagedKVCache,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        k_scale: float | None = None,
        v_scale: float | None = None,
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
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=True)


def fast_prefill_plan(
    wrapper: BatchPrefillWithPagedKVCacheWrapper,
    qo_indptr: torch.Tensor,
    paged_kv_indptr: torch.Tensor,
    paged_kv_indices: torch.Tensor,
    paged_kv_last_page_len: torch.Tensor,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim_qk: int,
    page_size: int,
    head_dim_vo: int | None = None,
    custom_mask: torch.Tensor | None = None,
    causal: bool = False,
    window_left: int = -1,
    q_data_type: str | torch.dtype = "float16",
    kv_data_type: str | torch.dtype | None = None,
    o_data_type: str | torch.dtype | None = None,
    non_blocking: bool = True,
    fixed_split_size: int | None = None,
    disable_split_kv: bool = False,
    *,
    qo_indptr_host: torch.Tensor,
    kv_indptr_host: torch.Tensor,
    kv_lens_host: torch.Tensor,
    max_q_len: int,
    max_kv_len: int,
    uniform_q_len: int | None = None,
) -> None:
    """``wrapper.plan(…)`` of a CUDA-graph wrapper that was planned before; the kind of attention stays that plan's.

    Lengths are those on the host, `qo_indptr_host`, `kv_indptr_host` (requests + 1,) and `kv_lens_host` (requests,),
    int32. Raises `InvalidPlan` for a wrapper that no plan() has planned, with another window or causality, or where not
    every request has `uniform_q_len` query rows.
    """
    before = wrapper._plan
    if before is None or not wrapper.is_cuda_graph_enabled:
        raise InvalidPlan("fast_prefill_plan replans CUDA-graph wrappers that plan() has planned")
    if (causal, window_left) != (before.kind.causal, before.kind.window_left):
        raise InvalidPlan(
            f"causal={causal}, window_left={window_left}; planned were {before.kind.causal}, {before.kind.window_left}"
        )
    for name, host, length in (
        ("qo_indptr_host", qo_indptr_host, len(qo_indptr)),
        ("kv_indptr_host", kv_indptr_host, len(paged_kv_indptr)),
        ("kv_lens_host", kv_lens_host, len(paged_kv_last_page_len)),
    ):
        check_tensor(name, host, (length,), torch.int32, torch.device("cpu"))
    hint = max(int(uniform_q_len or 0), 0)
    if hint and not bool((qo_indptr_host.diff() == hint).all()):
        raise InvalidPlan(f"uniform_q_len={hint}, but not every request has {hint} query rows.")
    kind, rotation = before.kind, before.kind.rotation
    wrapper.plan(
        qo_indptr_host, kv_indptr_host, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
        head_dim_qk, page_size, head_dim_vo, custom_mask,
        causal=causal, window_left=window_left, q_data_type=q_data_type, kv_data_type=kv_data_type,
        o_data_type=o_data_type, seq_lens=kv_lens_host, sm_scale=kind.sm_scale, logits_soft_cap=kind.soft_cap,
        pos_encoding_mode="ROPE_LLAMA" if rotation else "NONE", rope_scale=rotation.scale if rotation else None,
        rope_theta=rotation.theta if rotation else None, use_token_head_sf=before.token_head_scales,
    )  # fmt: skip


def _check_pools(pools: tuple[torch.Tensor, torch.Tensor], plan: Plan, kv_layout: str) -> None:
    """The cache has the heads, dims and page size of the plan."""
    inner = (plan.page_size, plan.num_kv_heads) if kv_layout == "NHD" else (plan.num_kv_heads, plan.page_size)
    for name, pool, dim in (("keys", pools[0], plan.head_dim_qk), ("values", pools[1], plan.head_dim_vo)):
        if tuple(pool.shape[1:]) != (*inner, dim):
            raise InvalidArgument(f"the {name} have shape {tuple(pool.shape)}; planned were pages of {(*inner, dim)}")

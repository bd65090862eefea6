"""Planning FA2 prefill from host tensors alone: no device-to-host copy, no synchronisation, no allocation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import InvalidPlan
from .planner import WITH_FIXED_UNIFORM_Q_LEN, CapturedTile, raw_plan_arguments


def raw_fa2_planner() -> Callable[..., Any]:
    """Makes `raw_fa2_plan` for the installed planner."""
    takes_fixed = raw_plan_arguments() == WITH_FIXED_UNIFORM_Q_LEN

    def raw_fa2_plan(
        wrapper: Any,
        *,
        qo_indptr_host: torch.Tensor,
        kv_indptr_host: torch.Tensor,
        kv_lens_host: torch.Tensor,
        total_num_rows: int,
        batch_size: int,
        num_qo_heads: int,
        num_kv_heads: int,
        page_size: int,
        enable_cuda_graph: bool,
        head_dim_qk: int,
        head_dim_vo: int,
        causal: bool,
        window_left: int = -1,
        fixed_split_size: int = -1,
        disable_split_kv: bool = False,
        num_colocated_ctas: int = 0,
        uniform_q_len: int = 0,
        fixed_uniform_q_len: bool = False,
    ) -> Any:
        """Call the FA2 planner of `wrapper` with as many arguments as the release takes: 20, or 21 from 0.7.3.

        Args:
            wrapper: a paged or ragged prefill wrapper, or a tensor-core decode wrapper, that was planned before.
            qo_indptr_host, kv_indptr_host: int32 CPU tensors ``[batch_size + 1]``; the latter counts pages.
            kv_lens_host: int32 CPU tensor ``[batch_size]``, in tokens.
            total_num_rows: query rows; with CUDA graphs the most that the wrapper was made for.
            page_size: 1 for ragged wrappers.
            uniform_q_len: every request has exactly this many query rows; 0 promises nothing.
            fixed_uniform_q_len: every plan of this graph carries the same `uniform_q_len`. Ignored before 0.7.3, where
                it could only have saved the merge of split KV.

        Returns the plan information that the wrapper's ``run`` reads; the caller stores it. Source: FlashInfer's
        csrc/batch_prefill_jit_binding.cu.
        """
        arguments = (
            wrapper._float_workspace_buffer,
            wrapper._int_workspace_buffer,
            _schedule_on_host(wrapper),
            qo_indptr_host,
            kv_indptr_host,
            kv_lens_host,
            total_num_rows,
            batch_size,
            num_qo_heads,
            num_kv_heads,
            page_size,
            enable_cuda_graph,
            head_dim_qk,
            head_dim_vo,
            causal,
            window_left,
            fixed_split_size,
            disable_split_kv,
            num_colocated_ctas,
            uniform_q_len,
        )
        if takes_fixed:
            return wrapper._cached_module.plan(*arguments, fixed_uniform_q_len)
        return wrapper._cached_module.plan(*arguments)

    return raw_fa2_plan


def _schedule_on_host(wrapper: Any) -> torch.Tensor:
    """Where the planner writes its schedule before it is copied to the device.

    plan() uses pinned memory, from which the copy is made when the GPU comes to it: another plan before that overwrites
    what an earlier replay is still to read. plan() itself waits for the GPU and never meets this; a plan that does not
    wait takes pageable memory, which CUDA stages before the call returns.
    """
    schedule: torch.Tensor | None = wrapper.__dict__.get("_compat_schedule")
    if schedule is None or schedule.numel() != wrapper._int_workspace_buffer.numel():
        schedule = torch.empty(wrapper._int_workspace_buffer.numel(), dtype=torch.uint8)
        wrapper.__dict__["_compat_schedule"] = schedule
    return schedule


def fast_prefill_planner() -> Callable[..., None]:
    """Makes `fast_prefill_plan` for the installed planner."""
    raw_fa2_plan = raw_fa2_planner()

    def fast_prefill_plan(
        wrapper: Any,
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
        """Replan a CUDA-graph paged prefill wrapper whose layout the caller knows on the host.

        The same plan as ``wrapper.plan(...)`` makes, without its three device-to-host copies: the queue of the GPU is
        not drained. Bind it as engines do, ``wrapper.begin_forward = partial(fast_prefill_plan, wrapper)``.

        Args:
            wrapper: a ``BatchPrefillWithPagedKVCacheWrapper`` with ``use_cuda_graph=True`` that ``plan`` has planned
                on the ``fa2`` backend, with the same heads, dtypes, mask kind and window.
            qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len: as for ``plan``, usually on the
                device; copied into the wrapper's buffers.
            custom_mask: bool, flat, as for ``plan``; packed on the device. Without it the wrapper's mask buffers keep
                what they hold, for callers that pack their own.
            qo_indptr_host, kv_indptr_host: the same values as int32 CPU tensors ``[batch_size + 1]``.
            kv_lens_host: int32 CPU tensor ``[batch_size]``: KV lengths in tokens.
            max_q_len, max_kv_len: the longest query and KV, in tokens.
            uniform_q_len: as for ``plan``; every request must have exactly that many query rows.

        Raises:
            InvalidPlan: a wrapper or a batch that this plan cannot serve. Nothing has been changed then, unless the
                message asks for another plan before the next replay.
        """
        batch_size = qo_indptr_host.numel() - 1
        hint = max(int(uniform_q_len or 0), 0)
        head_dim_vo = head_dim_qk if head_dim_vo is None else head_dim_vo
        q_dtype = _dtype(q_data_type)
        kv_dtype = q_dtype if kv_data_type is None else _dtype(kv_data_type)
        o_dtype = q_dtype if o_data_type is None else _dtype(o_data_type)
        tile = getattr(wrapper, "_compat_tile", None) or CapturedTile()
        _check_wrapper(wrapper, num_qo_heads, num_kv_heads, q_dtype, kv_dtype, o_dtype, causal, window_left)
        tile.check_geometry(page_size, head_dim_qk, head_dim_vo)
        _check_batch(wrapper, batch_size, qo_indptr_host, kv_indptr_host, kv_lens_host)
        _check_device_tensors(
            wrapper,
            qo_indptr,
            paged_kv_indptr,
            paged_kv_indices,
            paged_kv_last_page_len,
            int(kv_indptr_host.numpy()[-1]),
        )
        total_num_rows = int(qo_indptr_host.numpy()[-1])
        rows = wrapper._max_total_num_rows or total_num_rows
        if total_num_rows > rows:
            raise InvalidPlan(
                f"{total_num_rows} query rows exceed the {rows} that this CUDA-graph wrapper was planned for."
            )
        # A graph that was captured with a hint needs it in each later plan, passed or not.
        hint = hint or tile.captured or 0
        if hint and not tile.describes(hint, qo_indptr_host):
            raise InvalidPlan(f"uniform_q_len={hint}, but not every request has {hint} query rows.")
        packer = None
        if custom_mask is not None:
            packer = MaskPacker.of(wrapper)
            packer.prepare(custom_mask, qo_indptr_host, kv_lens_host)

        plan_info = raw_fa2_plan(
            wrapper,
            qo_indptr_host=qo_indptr_host,
            kv_indptr_host=kv_indptr_host,
            kv_lens_host=kv_lens_host,
            total_num_rows=rows,
            batch_size=batch_size,
            num_qo_heads=num_qo_heads,
            num_kv_heads=num_kv_heads,
            page_size=page_size,
            enable_cuda_graph=True,
            head_dim_qk=head_dim_qk,
            head_dim_vo=head_dim_vo,
            causal=causal,
            window_left=window_left,
            fixed_split_size=fixed_split_size or -1,
            disable_split_kv=disable_split_kv,
            uniform_q_len=hint,
        )
        # One launch for the four copies.
        torch._foreach_copy_(
            [
                wrapper._qo_indptr_buf,
                wrapper._paged_kv_indptr_buf,
                wrapper._paged_kv_last_page_len_buf,
                wrapper._paged_kv_indices_buf[: paged_kv_indices.numel()],
            ],
            [qo_indptr, paged_kv_indptr, paged_kv_last_page_len, paged_kv_indices],
            non_blocking=non_blocking,
        )
        if packer is not None:
            packer.pack(custom_mask)
        wrapper._plan_info = plan_info
        wrapper._batch_size = batch_size
        wrapper._qo_indptr_last, wrapper._max_q_len, wrapper._max_kv_len = total_num_rows, max_q_len, max_kv_len
        wrapper._block_tables = None
        # As plan() does on every call from 0.7.2.post1 on: a state left over would launch with its old batch size.
        if hasattr(wrapper, "_eagle_verify_fp8kv_sm90_state"):
            wrapper._eagle_verify_fp8kv_sm90_state = None

    return fast_prefill_plan


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    resolved = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    assert isinstance(resolved, torch.dtype)
    return resolved


def _check_wrapper(
    wrapper: Any,
    num_qo_heads: int,
    num_kv_heads: int,
    q_dtype: torch.dtype,
    kv_dtype: torch.dtype,
    o_dtype: torch.dtype,
    causal: bool,
    window_left: int,
) -> None:
    """What the kernel was compiled or captured for cannot change in a replan."""
    if not wrapper.is_cuda_graph_enabled:
        raise InvalidPlan("fast_prefill_plan replans CUDA-graph wrappers; this one was made with use_cuda_graph=False.")
    if wrapper._backend != "fa2" or getattr(wrapper, "_cached_module", None) is None:
        raise InvalidPlan(
            f"fast_prefill_plan needs an earlier plan() on the fa2 backend; this wrapper has {wrapper._backend!r}."
        )
    if not (hasattr(wrapper, "_num_qo_heads") and hasattr(wrapper, "_paged_kv_last_page_len_buf")):
        raise InvalidPlan(f"fast_prefill_plan takes a paged prefill wrapper; this one is a {type(wrapper).__name__}.")
    if getattr(wrapper, "_prefix_len_ptr", None) is not None:
        raise InvalidPlan(
            "fast_prefill_plan has no multi-item scoring, which this wrapper was planned with. Call plan()."
        )
    given = (num_qo_heads, num_kv_heads, q_dtype, kv_dtype, o_dtype, causal, window_left)
    planned = (
        wrapper._num_qo_heads,
        wrapper._num_kv_heads,
        wrapper._cached_q_data_type,
        wrapper._cached_kv_data_type,
        wrapper._cached_o_data_type,
        wrapper._causal,
        wrapper._window_left,
    )
    if given != planned:
        names = ("num_qo_heads", "num_kv_heads", "q_data_type", "kv_data_type", "o_data_type", "causal", "window_left")
        differing = [f"{n}={g} (planned: {p})" for n, g, p in zip(names, given, planned, strict=True) if g != p]
        raise InvalidPlan("The wrapper was planned with other values: " + ", ".join(differing) + ". Call plan().")


def _check_batch(
    wrapper: Any,
    batch_size: int,
    qo_indptr_host: torch.Tensor,
    kv_indptr_host: torch.Tensor,
    kv_lens_host: torch.Tensor,
) -> None:
    """The planner reads these as raw pointers: shape, dtype, device and layout are checked here."""
    for name, tensor, length in (
        ("qo_indptr_host", qo_indptr_host, batch_size + 1),
        ("kv_indptr_host", kv_indptr_host, batch_size + 1),
        ("kv_lens_host", kv_lens_host, batch_size),
    ):
        is_vector = tensor.dim() == 1 and tensor.numel() == length and tensor.is_contiguous()
        if not (is_vector and tensor.dtype is torch.int32 and tensor.is_cpu):
            raise InvalidPlan(
                f"{name} must be a contiguous int32 CPU tensor of shape ({length},); it is {tensor.dtype}, "
                f"{tensor.device}, {tuple(tensor.shape)}, strides {tensor.stride()}."
            )
    if batch_size != wrapper._fixed_batch_size:
        raise InvalidPlan(
            f"batch size {batch_size}, but this CUDA-graph wrapper was made for {wrapper._fixed_batch_size}."
        )


def _check_device_tensors(
    wrapper: Any,
    qo_indptr: torch.Tensor,
    paged_kv_indptr: torch.Tensor,
    paged_kv_indices: torch.Tensor,
    paged_kv_last_page_len: torch.Tensor,
    pages: int,
) -> None:
    """A copy would broadcast a tensor that is too short."""
    batch_size = wrapper._fixed_batch_size
    for name, tensor, length in (
        ("qo_indptr", qo_indptr, batch_size + 1),
        ("paged_kv_indptr", paged_kv_indptr, batch_size + 1),
        ("paged_kv_last_page_len", paged_kv_last_page_len, batch_size),
        ("paged_kv_indices", paged_kv_indices, paged_kv_indices.numel()),
    ):
        if tensor.dim() != 1 or tensor.numel() != length:
            raise InvalidPlan(f"{name} must have shape ({length},); it has {tuple(tensor.shape)}.")
    given, held = paged_kv_indices.numel(), wrapper._paged_kv_indices_buf.numel()
    if not pages <= given <= held:
        raise InvalidPlan(
            f"paged_kv_indices has {given} pages: kv_indptr_host counts {pages}, and the wrapper's buffer holds {held}."
        )


class MaskPacker:
    """Packs a custom mask into a wrapper's buffers without reading anything back: lengths are known on the host."""

    def __init__(self, wrapper: Any) -> None:
        from flashinfer.quantization.packbits import get_quantization_module

        self._segment_packbits = get_quantization_module().segment_packbits
        self._packed, self._packed_indptr = wrapper._custom_mask_buf, wrapper._mask_indptr_buf
        if not (torch.is_tensor(self._packed) and torch.is_tensor(self._packed_indptr)):
            raise InvalidPlan("custom_mask needs custom_mask_buf and mask_indptr_buf, given when the wrapper is made.")
        self._indptr = torch.empty_like(self._packed_indptr)
        self._host_indptr: torch.Tensor
        self._host_packed_indptr: torch.Tensor

    @classmethod
    def of(cls, wrapper: Any) -> MaskPacker:
        packer: MaskPacker | None = wrapper.__dict__.get("_compat_mask_packer")
        if packer is None or packer._packed is not wrapper._custom_mask_buf:
            packer = wrapper.__dict__["_compat_mask_packer"] = cls(wrapper)
        return packer

    def prepare(self, custom_mask: torch.Tensor, qo_indptr: torch.Tensor, kv_lens: torch.Tensor) -> None:
        """Work out on the host where each request's bits lie, and check that they fit."""
        bits = qo_indptr.diff() * kv_lens
        zero = torch.zeros(1, dtype=torch.int32)
        self._host_indptr = torch.cat([zero, bits.cumsum(0, dtype=torch.int32)])
        self._host_packed_indptr = torch.cat([zero, ((bits + 7) // 8).cumsum(0, dtype=torch.int32)])
        total, held = int(self._host_packed_indptr[-1]), self._packed.numel()
        if custom_mask.dtype is not torch.bool or custom_mask.device != self._packed.device:
            raise InvalidPlan(
                f"custom_mask must be bool on {self._packed.device}; it is {custom_mask.dtype} on {custom_mask.device}."
            )
        if custom_mask.numel() != int(self._host_indptr[-1]) or total > held:
            raise InvalidPlan(
                f"custom_mask has {custom_mask.numel()} entries, the batch {int(self._host_indptr[-1])}; packed they "
                f"take {total} bytes, and custom_mask_buf holds {held}."
            )

    def pack(self, custom_mask: torch.Tensor) -> None:
        self._indptr.copy_(self._host_indptr, non_blocking=True)
        self._packed_indptr.copy_(self._host_packed_indptr, non_blocking=True)
        mask = custom_mask.contiguous().view(-1)
        self._segment_packbits(mask, self._indptr, self._packed_indptr, "little", self._packed)

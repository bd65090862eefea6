"""What the attention wrappers share: a planned batch, its masks, its outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import InvalidArgument, InvalidPlan, UnsupportedCombination
from .bits import unpacked_bits
from .checks import check_tensor, dtype_of, is_fp8, refuse
from .dense import Kind, Rotation, Scale, attend
from .precision import wide
from .quantization import segment_packbits

BACKENDS = (
    "auto", "fa2", "fa3", "cudnn", "cutlass", "cutile", "trtllm-gen", "fmha_v2", "cute-dsl", "cute-dsl-prims",
)  # fmt: skip
#: Keys and values of a request: (kv_len, kv_heads, dim) each.
Read = Callable[[int], "tuple[torch.Tensor, torch.Tensor]"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A planned batch. Lengths are in tokens, one for each request; `o_dtype` is the output's."""

    kind: Kind
    q_lens: Sequence[int]
    kv_lens: Sequence[int]
    num_qo_heads: int
    num_kv_heads: int
    head_dim_qk: int
    head_dim_vo: int
    q_dtype: torch.dtype
    kv_dtype: torch.dtype
    o_dtype: torch.dtype
    token_head_scales: bool = False
    page_size: int = 1
    #: What FlashInfer keeps by these names, for code that reads it from a wrapper.
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        if self.num_kv_heads < 1 or self.num_qo_heads % self.num_kv_heads:
            raise InvalidPlan(f"num_qo_heads={self.num_qo_heads} must be a multiple of {self.num_kv_heads} KV heads")
        if len(self.q_lens) != len(self.kv_lens):
            raise InvalidPlan(f"{len(self.q_lens)} requests have queries and {len(self.kv_lens)} have a KV")
        if min([*self.q_lens, *self.kv_lens], default=0) < 0:
            raise InvalidPlan("an indptr decreases")
        object.__setattr__(self, "rows", sum(self.q_lens))
        if self.token_head_scales:
            self._check_token_head_scales()

    def is_described_by(self, uniform_q_len: int | None) -> bool:
        """Whether every request has that many query rows; None, 0 and less promise nothing."""
        hint = max(int(uniform_q_len or 0), 0)
        return not hint or all(length == hint for length in self.q_lens)

    def _check_token_head_scales(self) -> None:
        if not is_fp8(self.kv_dtype) or self.q_dtype not in (torch.float16, torch.bfloat16):
            raise InvalidPlan(
                f"use_token_head_sf takes an fp8 KV and 16-bit queries; they are {self.kv_dtype} and {self.q_dtype}"
            )
        if self.head_dim_qk % 16 or self.head_dim_vo % 16:
            raise InvalidPlan(
                f"use_token_head_sf: head dims {self.head_dim_qk}, {self.head_dim_vo} are no multiples of 16"
            )


def kind_of(
    *,
    causal: bool,
    pos_encoding_mode: str,
    sm_scale: float | None,
    window_left: int,
    logits_soft_cap: float | None,
    rope_scale: float | None,
    rope_theta: float | None,
) -> Kind:
    """The arguments of a plan, as they come."""
    if pos_encoding_mode not in ("NONE", "ROPE_LLAMA", "ALIBI"):
        raise KeyError(pos_encoding_mode)  # the type that FlashInfer raises
    refuse("plan", pos_encoding_mode=pos_encoding_mode == "ALIBI")
    rotation = Rotation(scale=rope_scale or 1.0, theta=rope_theta or 1e4) if pos_encoding_mode == "ROPE_LLAMA" else None
    return Kind(
        sm_scale=sm_scale,
        soft_cap=logits_soft_cap or 0.0,
        causal=causal,
        window_left=window_left,
        rotation=rotation,
    )


def dtypes(q: Any, kv: Any, o: Any) -> tuple[torch.dtype, torch.dtype, torch.dtype]:
    """Those of queries, KV and output, the latter two the query's unless they are given."""
    q_dtype = dtype_of(q)
    return q_dtype, q_dtype if kv is None else dtype_of(kv), q_dtype if o is None else dtype_of(o)


def check_backend(backend: str) -> None:
    if backend not in BACKENDS:
        raise InvalidArgument(f"backend is {backend!r}; FlashInfer's are {', '.join(BACKENDS)}")


class Masks:
    """Custom masks as a wrapper keeps them: packed bits, and the byte at which each request's begin.

    A CUDA-graph wrapper has them in the caller's buffers, which may be written without a plan.
    """

    def __init__(self, packed: torch.Tensor | None = None, indptr: torch.Tensor | None = None) -> None:
        self.packed, self.indptr = packed, indptr

    @classmethod
    def of(
        cls, custom_mask: torch.Tensor | None, packed: torch.Tensor | None, plan: Plan, device: torch.device
    ) -> Masks:
        bits = [rows * kv_len for rows, kv_len in zip(plan.q_lens, plan.kv_lens, strict=True)]
        if packed is not None:
            if sum(count > 0 for count in bits) > 1:
                raise UnsupportedCombination(
                    "packed_custom_mask of several requests: FlashInfer looks for a request's bits at the byte where "
                    "its unpacked mask begins, beyond what packbits() and segment_packbits() give. Pass custom_mask."
                )
            return cls(packed.to(device), torch.zeros(len(bits) + 1, dtype=torch.int32, device=device))
        if custom_mask is None:
            return cls()
        if custom_mask.numel() != sum(bits):
            raise InvalidPlan(f"custom_mask has {custom_mask.numel()} entries; the batch has {sum(bits)}")
        starts = torch.tensor([0, *bits]).cumsum(0)
        return cls(*segment_packbits(custom_mask.to(device).reshape(-1), starts.to(device), bitorder="little"))

    def copy_into(self, buffer: torch.Tensor | None, indptr: torch.Tensor | None) -> Masks:
        """In the buffers of a CUDA-graph wrapper, which hold what they did where this plan has no mask."""
        if self.packed is not None and self.indptr is not None:
            if not isinstance(buffer, torch.Tensor) or not isinstance(indptr, torch.Tensor):
                raise InvalidPlan(
                    "custom_mask needs custom_mask_buf and mask_indptr_buf, given when the wrapper is made"
                )
            if self.packed.numel() > buffer.numel():
                raise InvalidPlan(f"custom_mask takes {self.packed.numel()} bytes; its buffer has {buffer.numel()}")
            buffer[: self.packed.numel()].copy_(self.packed)
            indptr.copy_(self.indptr)
        return Masks(buffer, indptr)

    def read(self, plan: Plan) -> list[torch.Tensor | None]:
        """One for each request, (rows, kv_len), bool; None where there are none."""
        if self.packed is None or self.indptr is None:
            return [None] * len(plan.q_lens)
        masks: list[torch.Tensor | None] = []
        for start, rows, kv_len in zip(self.indptr.tolist(), plan.q_lens, plan.kv_lens, strict=False):
            packed = self.packed[start : start + -(-rows * kv_len // 8)]
            masks.append(unpacked_bits(packed, rows * kv_len).view(rows, kv_len))
        return masks


def run_batch(
    plan: Plan,
    q: torch.Tensor,
    read: Read,
    *,
    scale: Scale = 1.0,
    v_scale: Scale = 1.0,
    masks: Sequence[torch.Tensor | None] | None = None,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (rows, heads, value dim) and base-2 log-sum-exp (rows, heads) of the batch, as wide as computed."""
    if q.shape[1:] != (plan.num_qo_heads, plan.head_dim_qk):
        raise InvalidArgument(f"q has shape {tuple(q.shape)}; heads are {plan.num_qo_heads} of {plan.head_dim_qk}")
    outs, sums = [], []
    for request, rows in enumerate(q.split(list(plan.q_lens))):
        k, v = read(request)
        mask = None if masks is None else masks[request]
        out, lse = attend(rows, k, v, plan.kind, scale=scale, mask=mask, sinks=sinks)
        outs.append(out * v_scale)
        sums.append(lse)
    if not outs:
        empty = wide(q.new_empty(0, plan.num_qo_heads, plan.head_dim_vo))
        return empty, empty[..., 0]
    return torch.cat(outs), torch.cat(sums)


def deliver(
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    into: torch.Tensor | None,
    lse_into: torch.Tensor | None,
    dtype: torch.dtype,
    return_lse: bool,
    lse_base: str = "log2",
    lse_layout: str = "NH",
) -> Any:
    """What ``run`` returns: rounded to `dtype`, in the caller's tensors where given, the log-sum-exp as asked for."""
    if lse_base not in ("log2", "ln"):
        raise InvalidArgument(f"lse_base is {lse_base!r}; it must be 'log2' or 'ln'")
    if lse_layout not in ("NH", "HN"):
        raise InvalidArgument(f"lse_layout is {lse_layout!r}; it must be 'NH' or 'HN'")
    if into is not None:
        check_tensor("out", into, out.shape, dtype, out.device)
        out = into.copy_(out)
    else:
        out = out.to(dtype)
    if not return_lse:
        return out
    lse = lse * math.log(2) if lse_base == "ln" else lse
    lse = (lse.T if lse_layout == "HN" else lse).float().contiguous()
    if lse_into is not None:
        check_tensor("lse", lse_into, lse.shape, torch.float32, lse.device)
        lse = lse_into.copy_(lse)
    return out, lse


def product(*scales: Any) -> Scale:
    """Of scales that are numbers, tensors of one value, or None for 1."""
    result: Scale = 1.0
    for scale in scales:
        if isinstance(scale, torch.Tensor):
            if scale.numel() != 1:
                raise InvalidArgument(f"a scale has shape {tuple(scale.shape)}; it must be of one value")
            scale = wide(scale).reshape(())
        result = result if scale is None else result * scale
    return result

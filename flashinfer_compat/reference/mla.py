"""`flashinfer.mla`: attention over a paged latent KV, which is keys and values at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch

from ..errors import InvalidArgument, InvalidPlan, UnsupportedArgument
from .batch import Plan, product, run_batch
from .checks import Lacking, check_not_captured, check_tensor, is_fp8, refuse
from .dense import Kind
from .kv_cache import check_pages, gathered
from .precision import wide

BACKENDS = (
    "auto", "autotune", "fa2", "fa3", "cutlass", "cutile", "trtllm-gen", "xqa", "cute-dsl", "cute-dsl-monolithic",
    "cute-dsl-modular", "cute-dsl-rubin-mtp",
)  # fmt: skip
LSE_MODES = ("none", "base2", "basee")
#: Latent and rotary part, apart or side by side in the last dimension.
Parts: TypeAlias = "torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None"


@dataclass(frozen=True)
class MLAPlanMetadata:
    """The lengths and the page table of a batch: as index pointers, as a dense table, or both."""

    qo_indptr: torch.Tensor | None = None
    kv_indptr: torch.Tensor | None = None
    kv_indices: torch.Tensor | None = None
    kv_len_arr: torch.Tensor | None = None
    cum_seq_lens_q: torch.Tensor | None = None
    block_tables: torch.Tensor | None = None
    seq_lens: torch.Tensor | None = None
    max_q_len: int | None = None

    @classmethod
    def csr(
        cls, qo_indptr: torch.Tensor, kv_indptr: torch.Tensor, kv_indices: torch.Tensor, kv_len_arr: torch.Tensor
    ) -> MLAPlanMetadata:
        """Query rows and pages as index pointers (requests + 1,), pages, and KV tokens (requests,)."""
        return cls(qo_indptr=qo_indptr, kv_indptr=kv_indptr, kv_indices=kv_indices, kv_len_arr=kv_len_arr)

    @classmethod
    def dense(
        cls,
        cum_seq_lens_q: torch.Tensor,
        block_tables: torch.Tensor,
        seq_lens: torch.Tensor,
        max_q_len: int | None = None,
    ) -> MLAPlanMetadata:
        """Query rows as an index pointer (requests + 1,), pages (requests, most pages), and KV tokens (requests,)."""
        return cls(cum_seq_lens_q=cum_seq_lens_q, block_tables=block_tables, seq_lens=seq_lens, max_q_len=max_q_len)

    @classmethod
    def dual(
        cls,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        kv_len_arr: torch.Tensor,
        *,
        cum_seq_lens_q: torch.Tensor,
        block_tables: torch.Tensor,
        seq_lens: torch.Tensor,
        max_q_len: int | None = None,
    ) -> MLAPlanMetadata:
        """Both; they must say the same."""
        return cls(
            qo_indptr=qo_indptr, kv_indptr=kv_indptr, kv_indices=kv_indices, kv_len_arr=kv_len_arr,
            cum_seq_lens_q=cum_seq_lens_q, block_tables=block_tables, seq_lens=seq_lens, max_q_len=max_q_len,
        )  # fmt: skip


class _Requests(NamedTuple):
    """What a batch's metadata come to: lengths in tokens, and each request's pages."""

    q_lens: list[int]
    kv_lens: list[int]
    pages: list[torch.Tensor]


class _Promised(NamedTuple):
    """What plan() says of the calls of run()."""

    lse_mode: str
    any_lse: bool
    scaled: bool
    query_layout: str
    kv_cache_layout: str
    width: int


class BatchMLAPagedAttentionWrapper(Lacking):
    """Multi-head latent attention, the projections absorbed: every head reads one latent (512) and rotary key (64)."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        use_cuda_graph: bool = False,
        qo_indptr: torch.Tensor | None = None,
        kv_indptr: torch.Tensor | None = None,
        kv_indices: torch.Tensor | None = None,
        kv_len_arr: torch.Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        """`float_workspace_buffer` says the device; `backend` is any of FlashInfer's. Graphs cannot be captured."""
        if backend not in BACKENDS:
            raise InvalidArgument(f"backend is {backend!r}; FlashInfer's are {', '.join(BACKENDS)}")
        self._float_workspace_buffer, self.device = float_workspace_buffer, float_workspace_buffer.device
        self._use_cuda_graph, self._backend = use_cuda_graph, backend
        self._qo_indptr_buf, self._kv_indptr_buf = qo_indptr, kv_indptr
        self._kv_indices_buf, self._kv_len_arr_buf = kv_indices, kv_len_arr
        self._plan: Plan | None = None

    def plan(
        self,
        qo_indptr: torch.Tensor | None = None,
        kv_indptr: torch.Tensor | None = None,
        kv_indices: torch.Tensor | None = None,
        kv_len_arr: torch.Tensor | None = None,
        num_heads: int | None = None,
        head_dim_ckv: int | None = None,
        head_dim_kpe: int | None = None,
        page_size: int | None = None,
        causal: bool | None = None,
        sm_scale: float | None = None,
        q_data_type: torch.dtype | None = None,
        kv_data_type: torch.dtype | None = None,
        use_profiler: bool = False,
        *,
        metadata: MLAPlanMetadata | None = None,
        cum_seq_lens_q: torch.Tensor | None = None,
        block_tables: torch.Tensor | None = None,
        seq_lens: torch.Tensor | None = None,
        max_q_len: int | None = None,
        query_layout: str | None = None,
        kv_cache_layout: str | None = None,
        lse_mode: str = "none",
        output_dtype: torch.dtype | None = None,
        output_scale: str = "none",
        scale_mode: str = "default",
        skip_softmax: bool = False,
        enable_pdl: bool | None = None,
        use_sinks: bool = False,
    ) -> None:
        """The batch (`metadata`, or its fields one by one), the kind of attention, and what `run` will be given.

        Args:
            num_heads, head_dim_ckv, head_dim_kpe, page_size, causal, sm_scale, q_data_type, kv_data_type: required.
            query_layout, kv_cache_layout: "packed" or "split", which the inputs of run() must be.
            lse_mode: "base2" or "basee" where run() returns a log-sum-exp, else "none".
            output_dtype: `q_data_type` by default. An fp8 KV takes scales in run(), ``scale_mode="kv-per-tensor"``.

        Sinks, an output scale, scales of the products and the skipped softmax raise `UnsupportedArgument`.
        """
        refuse(
            "plan",
            use_sinks=use_sinks,
            skip_softmax=skip_softmax,
            use_profiler=use_profiler,
            output_scale=output_scale != "none",
            scale_mode=scale_mode not in ("default", "kv-per-tensor"),
        )
        flat = MLAPlanMetadata(
            qo_indptr, kv_indptr, kv_indices, kv_len_arr, cum_seq_lens_q, block_tables, seq_lens, max_q_len
        )
        fields_given = any(value is not None for value in vars(flat).values())
        if metadata is not None and fields_given:
            raise InvalidArgument("plan() takes metadata= or its fields, not both")
        if metadata is None and not fields_given:
            raise TypeError("plan() needs metadata=")
        required: dict[str, Any] = {
            "num_heads": num_heads,
            "head_dim_ckv": head_dim_ckv,
            "head_dim_kpe": head_dim_kpe,
            "page_size": page_size,
            "causal": causal,
            "sm_scale": sm_scale,
            "q_data_type": q_data_type,
            "kv_data_type": kv_data_type,
        }
        if missing := [name for name, value in required.items() if value is None]:
            raise TypeError(f"plan() needs {', '.join(missing)}")
        width: int = required["head_dim_ckv"]
        if lse_mode not in LSE_MODES:
            raise InvalidArgument(f"lse_mode is {lse_mode!r}; it must be one of {LSE_MODES}")
        requests = _requests(metadata or flat, required["page_size"])
        self._plan = Plan(
            kind=Kind(sm_scale=sm_scale, causal=bool(causal)),
            q_lens=requests.q_lens,
            kv_lens=requests.kv_lens,
            num_qo_heads=required["num_heads"],
            num_kv_heads=1,
            head_dim_qk=width + required["head_dim_kpe"],
            head_dim_vo=width,
            q_dtype=required["q_data_type"],
            kv_dtype=required["kv_data_type"],
            o_dtype=output_dtype or required["q_data_type"],
            page_size=required["page_size"],
        )
        self._pages = requests.pages
        apart = "split" if metadata is None else "packed"
        self._promised = _Promised(
            lse_mode=lse_mode,
            # The older form of plan() leaves the log-sum-exp to run().
            any_lse=metadata is None and flat.kv_indptr is not None and lse_mode == "none",
            scaled=is_fp8(required["kv_data_type"]) or scale_mode == "kv-per-tensor",
            query_layout=query_layout or apart,
            kv_cache_layout=kv_cache_layout or apart,
            width=width,
        )

    def run(
        self,
        q_nope: torch.Tensor | None = None,
        q_pe: torch.Tensor | None = None,
        ckv_cache: torch.Tensor | None = None,
        kpe_cache: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        profiler_buffer: torch.Tensor | None = None,
        kv_len: torch.Tensor | None = None,
        page_table: torch.Tensor | None = None,
        return_lse_base_on_e: bool = False,
        o_scale: float | None = None,
        *,
        query: Any = None,
        kv_cache: Any = None,
        ckv_scale: float | None = None,
        ckv_scale_arr: torch.Tensor | None = None,
        kpe_scale: float | None = None,
        sinks: torch.Tensor | None = None,
        skip_softmax_threshold_scale_factor: float | None = None,
        bmm1_scale: float | torch.Tensor | None = None,
        bmm2_scale: float | torch.Tensor | None = None,
    ) -> Any:
        """The output (rows, heads, latent) of the queries.

        Args:
            query: (rows, heads, latent + rotary), or the two apart, as planned. Rows beyond the plan stay unwritten.
            kv_cache: (pages, page_size, latent + rotary), or the two apart. q_nope, q_pe, ckv_cache, kpe_cache are the
                older names of the four.
            out, lse: written and returned where given. return_lse: also the log-sum-exp (rows, heads), float32, in base
                2, or in base e with `return_lse_base_on_e`.
            ckv_scale, kpe_scale: of an fp8 KV. A scale for each token (`ckv_scale_arr`) raises `UnsupportedArgument`,
                as all that plan() refuses.
        """
        if self._plan is None:
            raise RuntimeError("BatchMLAPagedAttentionWrapper.run() was called before plan()")
        refuse(
            "run",
            profiler_buffer=profiler_buffer,
            kv_len=kv_len,
            page_table=page_table,
            o_scale=o_scale,
            ckv_scale_arr=ckv_scale_arr,
            sinks=sinks,
            skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
            bmm1_scale=bmm1_scale,
            bmm2_scale=bmm2_scale,
        )
        plan, promised = self._plan, self._promised
        asked = ("basee" if return_lse_base_on_e else "base2") if return_lse or lse is not None else "none"
        if asked != promised.lse_mode and not promised.any_lse:
            raise InvalidArgument(f"the log-sum-exp is {asked!r}; plan(lse_mode=) was told {promised.lse_mode!r}")
        if promised.scaled != (ckv_scale is not None and kpe_scale is not None):
            raise InvalidArgument("ckv_scale and kpe_scale belong to an fp8 KV, and to no other")
        rotary = plan.head_dim_qk - promised.width
        q = _parts("query", query, (q_nope, q_pe), promised.query_layout, (promised.width, rotary), plan.q_dtype)
        kv = _parts(
            "kv_cache",
            kv_cache,
            (ckv_cache, kpe_cache),
            promised.kv_cache_layout,
            (promised.width, rotary),
            plan.kv_dtype,
        )
        if q[0].size(0) < plan.rows:
            raise InvalidArgument(f"query has {q[0].size(0)} rows; plan() was told {plan.rows}")
        if kv[0].size(1) != plan.page_size:
            raise InvalidArgument(f"kv_cache has pages of {kv[0].size(1)}; plan() was told {plan.page_size}")
        check_not_captured(q[0])

        def read(request: int) -> tuple[torch.Tensor, torch.Tensor]:
            pages = self._pages[request].to(q[0].device)
            check_pages(pages, kv[0].size(0))
            # The one KV head is the dimension that NHD has behind the tokens.
            parts = (gathered(pool.unsqueeze(2), pages, plan.kv_lens[request], "NHD") for pool in kv)
            latent, turned = (
                wide(part) * product(scale) for part, scale in zip(parts, (ckv_scale, kpe_scale), strict=True)
            )
            return torch.cat([latent, turned], dim=-1), latent

        rows = torch.cat(q, dim=-1)
        values, sums = run_batch(plan, rows[: plan.rows], read)
        return _padded(values, sums, rows.size(0), plan, out, lse, asked, return_lse)


def _requests(metadata: MLAPlanMetadata, page_size: int) -> _Requests:
    """From index pointers where they are given, else from the dense table."""
    if metadata.qo_indptr is not None:
        starts, lengths = metadata.qo_indptr, metadata.kv_len_arr
        if metadata.kv_indptr is None or metadata.kv_indices is None or lengths is None:
            raise InvalidPlan("qo_indptr, kv_indptr, kv_indices and kv_len_arr belong together")
        if len(metadata.kv_indptr) != len(starts):
            raise InvalidPlan(f"qo_indptr and kv_indptr have {len(starts)} and {len(metadata.kv_indptr)} entries")
        counts = metadata.kv_indptr.diff().tolist()
        pages = list(metadata.kv_indices[: sum(counts)].split(counts))
    else:
        starts, lengths = metadata.cum_seq_lens_q, metadata.seq_lens
        if starts is None or lengths is None or metadata.block_tables is None:
            raise InvalidPlan("cum_seq_lens_q, block_tables and seq_lens belong together")
        kv_lens = lengths.flatten().tolist()
        pages = [row[: -(-kv_len // page_size)] for row, kv_len in zip(metadata.block_tables, kv_lens, strict=True)]
    kv_lens = lengths.flatten().tolist()
    for kv_len, own in zip(kv_lens, pages, strict=True):
        if len(own) * page_size < kv_len:
            raise InvalidPlan(f"a request has {kv_len} tokens in {len(own)} pages of {page_size}")
    return _Requests(starts.diff().tolist(), kv_lens, pages)


def _parts(
    name: str, given: Any, older: tuple[Any, Any], layout: str, widths: tuple[int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The latent and the rotary part of an input, in the layout that was planned."""
    if given is None:
        if any(part is None for part in older):
            raise TypeError(f"run() needs {name}=")
        given = older
    elif any(part is not None for part in older):
        raise TypeError(f"run() takes {name}= or its parts, not both")
    if isinstance(given, torch.Tensor):
        if given.size(-1) != sum(widths):
            raise InvalidArgument(f"{name} is {given.size(-1)} wide; planned were {widths}")
        parts = given.split(list(widths), dim=-1)
    elif layout == "packed" and given is not older:
        raise UnsupportedArgument(f"{name} is given in parts; plan() was told that it is packed")
    else:
        parts = given
    if len(parts) != 2 or any(part.ndim != 3 for part in parts):
        raise InvalidArgument(f"{name} must be three-dimensional, one tensor or two")
    for part, width in zip(parts, widths, strict=True):
        if part.size(-1) != width or part.dtype != dtype:
            raise InvalidArgument(f"{name} is {part.size(-1)} wide and {part.dtype}; planned were {width} and {dtype}")
    return parts[0], parts[1]


def _padded(
    values: torch.Tensor,
    sums: torch.Tensor,
    rows: int,
    plan: Plan,
    out: torch.Tensor | None,
    lse: torch.Tensor | None,
    asked: str,
    return_lse: bool,
) -> Any:
    """The results in tensors of all `rows`, those beyond the plan unwritten."""
    if out is None:
        out = values.new_empty((rows, *values.shape[1:]), dtype=plan.o_dtype)
    check_tensor("out", out, (rows, *values.shape[1:]), plan.o_dtype, values.device)
    if asked != "none":
        if lse is None:
            lse = sums.new_empty((rows, sums.size(1)), dtype=torch.float32)
        check_tensor("lse", lse, (rows, sums.size(1)), torch.float32, values.device)
        lse[: plan.rows].copy_(sums * math.log(2) if asked == "basee" else sums)
    out[: plan.rows].copy_(values)
    return (out, lse) if return_lse else out

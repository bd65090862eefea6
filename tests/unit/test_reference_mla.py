"""The reference's MLA wrapper against loops in float64: metadata, layouts, log-sum-exp modes, padded rows, fp8."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the reference is written in PyTorch")

import loops  # noqa: E402

from flashinfer_compat.errors import InvalidArgument, InvalidPlan, UnsupportedArgument  # noqa: E402
from flashinfer_compat.reference import mla  # noqa: E402

HEADS, CKV, KPE, PAGE_SIZE, SM_SCALE = 3, 16, 8, 4, 0.3
WORKSPACE = torch.empty(1)


def indptr(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)


class Batch:
    def __init__(self, q_lens: list[int], kv_lens: list[int], dtype: Any = torch.float32) -> None:
        torch.manual_seed(5)
        self.q_lens, self.kv_lens, self.dtype = q_lens, kv_lens, dtype
        self.pages = [-(-length // PAGE_SIZE) for length in kv_lens]
        total = sum(self.pages)
        self.indices = torch.randperm(total + 2)[:total].int()
        self.query = torch.randn(sum(q_lens), HEADS, CKV + KPE)
        self.cache = torch.randn(total + 2, PAGE_SIZE, CKV + KPE).to(dtype)

    @property
    def csr(self) -> Any:
        lens = torch.tensor(self.kv_lens, dtype=torch.int32)
        return mla.MLAPlanMetadata.csr(indptr(self.q_lens), indptr(self.pages), self.indices, lens)

    @property
    def dense(self) -> Any:
        table = torch.zeros(len(self.pages), max(self.pages) + 1, dtype=torch.int32)
        for row, pages in zip(table, self.indices.split(self.pages), strict=True):
            row[: len(pages)] = pages
        return mla.MLAPlanMetadata.dense(indptr(self.q_lens), table, torch.tensor(self.kv_lens))

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "num_heads": HEADS, "head_dim_ckv": CKV, "head_dim_kpe": KPE, "page_size": PAGE_SIZE, "causal": True,
            "sm_scale": SM_SCALE, "q_data_type": torch.float32, "kv_data_type": self.dtype,
        }  # fmt: skip

    def planned(self, **options: Any) -> Any:
        wrapper = mla.BatchMLAPagedAttentionWrapper(WORKSPACE)
        wrapper.plan(**{"metadata": self.csr, "lse_mode": "base2", **self.arguments, **options})
        return wrapper

    def expected(self, ckv_scale: float = 1, kpe_scale: float = 1) -> tuple[torch.Tensor, torch.Tensor]:
        results = []
        for request, rows in enumerate(self.query.split(self.q_lens)):
            pages = self.indices.split(self.pages)[request].long()
            kv = self.cache.float()[pages].flatten(0, 1)[: self.kv_lens[request]].unsqueeze(1)
            latent, rotary = kv[..., :CKV] * ckv_scale, kv[..., CKV:] * kpe_scale
            keys = torch.cat([latent, rotary], dim=-1)
            results.append(loops.attention(rows, keys, latent, loops.causal, scale=SM_SCALE))
        return torch.cat([out for out, _ in results]), torch.cat([lse for _, lse in results])


def split(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor[..., :CKV], tensor[..., CKV:]


def assert_equal(result: Any, expected: tuple[torch.Tensor, torch.Tensor]) -> None:
    for got, right in zip(result, expected, strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("metadata", ["csr", "dense"])
@pytest.mark.parametrize("layout", ["packed", "split"])
@pytest.mark.parametrize("q_lens", [[1, 1, 1], [2, 5, 1]], ids=["decode", "incremental"])
def test_values(metadata: str, layout: str, q_lens: list[int]) -> None:
    batch = Batch(q_lens, [9, 5, 12])
    wrapper = batch.planned(metadata=getattr(batch, metadata), query_layout=layout, kv_cache_layout=layout)
    query, cache = (batch.query, batch.cache) if layout == "packed" else (split(batch.query), split(batch.cache))
    assert_equal(wrapper.run(query=query, kv_cache=cache, return_lse=True), batch.expected())


def test_the_older_forms_leave_the_log_sum_exp_to_run() -> None:
    batch = Batch([2, 1], [9, 5])
    fields = {name: value for name, value in vars(batch.csr).items() if value is not None}
    wrapper = batch.planned(metadata=None, lse_mode="none", **fields)
    (q_nope, q_pe), (ckv, kpe) = split(batch.query), split(batch.cache)
    out, lse = wrapper.run(q_nope, q_pe, ckv, kpe, return_lse=True, return_lse_base_on_e=True)
    expected = batch.expected()
    assert_equal((out, lse / math.log(2)), expected)
    assert torch.equal(wrapper.run(q_nope, q_pe, ckv, kpe), out)


def test_base_e() -> None:
    batch = Batch([2, 1], [9, 5])
    wrapper = batch.planned(lse_mode="basee")
    out, lse = wrapper.run(query=batch.query, kv_cache=batch.cache, return_lse=True, return_lse_base_on_e=True)
    assert_equal((out, lse / math.log(2)), batch.expected())
    with pytest.raises(InvalidArgument, match="'base2'.*'basee'"):
        wrapper.run(query=batch.query, kv_cache=batch.cache, return_lse=True)


def test_rows_beyond_the_plan_stay_unwritten() -> None:
    batch = Batch([2, 1], [9, 5])
    query = torch.cat([batch.query, torch.randn(4, HEADS, CKV + KPE)])
    out, lse = torch.full((7, HEADS, CKV), math.nan), torch.full((7, HEADS), math.nan)
    result = batch.planned().run(query=query, kv_cache=batch.cache, out=out, lse=lse, return_lse=True)
    assert [tensor.data_ptr() for tensor in result] == [out.data_ptr(), lse.data_ptr()]
    assert_equal((out[:3], lse[:3]), batch.expected())
    assert out[3:].isnan().all()
    assert lse[3:].isnan().all()
    assert batch.planned(lse_mode="none").run(query=query, kv_cache=batch.cache).shape == (7, HEADS, CKV)


def test_fp8_with_scales() -> None:
    batch = Batch([2, 1], [9, 5], torch.float8_e4m3fn)
    wrapper = batch.planned(kv_cache_layout="split")
    cache = tuple(part.contiguous() for part in split(batch.cache))
    result = wrapper.run(query=batch.query, kv_cache=cache, ckv_scale=0.5, kpe_scale=3.0, return_lse=True)
    assert_equal(result, batch.expected(0.5, 3.0))
    with pytest.raises(InvalidArgument, match="ckv_scale and kpe_scale"):
        wrapper.run(query=batch.query, kv_cache=cache, return_lse=True)


def test_errors() -> None:
    batch = Batch([2, 1], [9, 5])
    wrapper = batch.planned()
    with pytest.raises(RuntimeError, match="before plan"):
        mla.BatchMLAPagedAttentionWrapper(WORKSPACE).run(query=batch.query, kv_cache=batch.cache)
    with pytest.raises(InvalidArgument, match="backend is 'fa9'"):
        mla.BatchMLAPagedAttentionWrapper(WORKSPACE, backend="fa9")
    with pytest.raises(TypeError, match="needs sm_scale"):
        batch.planned(sm_scale=None)
    with pytest.raises(TypeError, match="needs metadata"):
        batch.planned(metadata=None)
    with pytest.raises(InvalidArgument, match="not both"):
        batch.planned(qo_indptr=indptr([1]))
    batch.pages = [1, 2]
    with pytest.raises(InvalidPlan, match="9 tokens in 1 pages"):
        batch.planned()
    with pytest.raises(UnsupportedArgument, match="use_sinks"):
        batch.planned(use_sinks=True)
    with pytest.raises(UnsupportedArgument, match="bmm1_scale"):
        wrapper.run(query=batch.query, kv_cache=batch.cache, bmm1_scale=1.0)
    for query, match in (
        (batch.query[:2], "2 rows"),
        (batch.query[..., :9], "9 wide"),
        (batch.query.half(), "float16"),
    ):
        with pytest.raises(InvalidArgument, match=match):
            wrapper.run(query=query, kv_cache=batch.cache, return_lse=True)
    with pytest.raises(UnsupportedArgument, match="packed"):
        wrapper.run(query=split(batch.query), kv_cache=batch.cache, return_lse=True)
    with pytest.raises(TypeError, match="run\\(\\) needs kv_cache="):
        wrapper.run(query=batch.query, return_lse=True)

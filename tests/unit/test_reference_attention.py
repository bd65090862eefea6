"""The reference's attention wrappers against loops in float64, over layouts, masks, windows, caps and dtypes."""

from __future__ import annotations

import math
import warnings
from itertools import accumulate
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the reference is written in PyTorch")

import loops  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from flashinfer_compat.errors import (  # noqa: E402
    CompatWarning,
    FeatureUnavailable,
    InvalidArgument,
    InvalidPlan,
    UnsupportedArgument,
    UnsupportedCombination,
)
from flashinfer_compat.reference import accumulate_in, decode, lookup, prefill  # noqa: E402
from flashinfer_compat.reference.quantization import segment_packbits  # noqa: E402

HEADS, KV_HEADS, DIM, PAGE_SIZE = 4, 2, 16, 3
WORKSPACE = torch.empty(1)
EXACT = {"rtol": 1e-5, "atol": 1e-6}


def int32(values: Any) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.int32)


def indptr(lengths: list[int]) -> torch.Tensor:
    return int32([0, *accumulate(lengths)])


class Paged:
    """Requests on a shuffled page table, one pool for keys and one for values, in float32 unless `dtype` says else."""

    def __init__(
        self, q_lens: list[int], kv_lens: list[int], *, layout: str = "NHD", dtype: Any = torch.float32, vo: int = DIM
    ) -> None:
        torch.manual_seed(len(q_lens) * 100 + sum(kv_lens))
        self.q_lens, self.kv_lens, self.layout, self.dtype, self.vo = q_lens, kv_lens, layout, dtype, vo
        pages = [-(-length // PAGE_SIZE) for length in kv_lens]
        order = torch.randperm(sum(pages) + 2)
        self.indices = order[: sum(pages)].int()
        self.kv = [(torch.randn(n, KV_HEADS, DIM).to(dtype), torch.randn(n, KV_HEADS, vo).to(dtype)) for n in kv_lens]
        pools = [torch.full((sum(pages) + 2, PAGE_SIZE, KV_HEADS, d), math.nan).to(dtype) for d in (DIM, vo)]
        starts = [0, *accumulate(pages)]
        for request, pair in enumerate(self.kv):
            for token in range(kv_lens[request]):
                page = int(self.indices[starts[request] + token // PAGE_SIZE])
                for pool, part in zip(pools, pair, strict=True):
                    pool[page, token % PAGE_SIZE] = part[token]
        self.cache = tuple(pool if layout == "NHD" else pool.transpose(1, 2).contiguous() for pool in pools)
        self.page_indptr = indptr(pages)
        self.last = int32([(n - 1) % PAGE_SIZE + 1 if n else 0 for n in kv_lens])
        self.q = torch.randn(sum(q_lens), HEADS, DIM)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (indptr(self.q_lens), self.page_indptr, self.indices, self.last, HEADS, KV_HEADS, DIM, PAGE_SIZE)

    @property
    def dtypes(self) -> dict[str, Any]:
        return {"q_data_type": torch.float32, "kv_data_type": self.dtype}

    def planned(self, **options: Any) -> Any:
        wrapper = prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, self.layout)
        wrapper.plan(*self.arguments, head_dim_vo=self.vo, **{**self.dtypes, **options})
        return wrapper

    def expected(self, sees: Any = loops.full, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        parts = [
            loops.attention(rows, *pair, sees(request) if isinstance(sees, PerRequest) else sees, **options)
            for request, (rows, pair) in enumerate(zip(self.q.split(self.q_lens), self.kv, strict=True))
        ]
        return torch.cat([out for out, _ in parts]), torch.cat([lse for _, lse in parts])


class PerRequest:
    """What is visible from one request's mask."""

    def __init__(self, masks: list[torch.Tensor]) -> None:
        self.masks = masks

    def __call__(self, request: int) -> Any:
        return lambda i, j, rows, kv_len: bool(self.masks[request][i, j])


def assert_equal(result: Any, expected: tuple[torch.Tensor, torch.Tensor], **tolerance: float) -> None:
    out, lse = result
    torch.testing.assert_close(out.double(), expected[0], **(tolerance or EXACT))
    torch.testing.assert_close(lse.double(), expected[1], **(tolerance or EXACT))


KINDS: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "full": ({}, loops.full, {}),
    "causal": ({"causal": True}, loops.causal, {}),
    "window": ({"causal": True, "window_left": 2}, loops.within(2), {}),
    "window of one": ({"causal": True, "window_left": 0}, loops.within(0), {}),
    "window, not causal": ({"window_left": 2}, loops.within(2, loops.full), {}),
    "soft cap": ({"causal": True, "logits_soft_cap": 0.7}, loops.causal, {"cap": 0.7}),
    "scale": ({"sm_scale": 0.9}, loops.full, {"scale": 0.9}),
}


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("kind", KINDS)
def test_paged_prefill(kind: str, layout: str) -> None:
    options, sees, formula = KINDS[kind]
    batch = Paged([2, 1, 5], [7, 1, 5], layout=layout)
    result = batch.planned(**options).run(batch.q, batch.cache, return_lse=True)
    assert_equal(result, batch.expected(sees, **formula))
    assert [tensor.dtype for tensor in result] == [torch.float32] * 2


def test_one_tensor_is_both_pools() -> None:
    batch = Paged([2, 3], [4, 3])
    assert_equal(batch.planned().run(batch.q, torch.stack(batch.cache, dim=1), return_lse=True), batch.expected())


def test_the_page_size_of_one_may_be_left_out() -> None:
    batch = Paged([2], [2])
    wrapper = prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE)
    wrapper.plan(indptr([2]), indptr([2]), int32([1, 0]), int32([1]), HEADS, KV_HEADS, DIM, 1, **batch.dtypes)
    keys, values = (part.flip(0) for part in batch.kv[0])
    assert_equal(wrapper.run(batch.q, (keys, values), return_lse=True), batch.expected())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8)), min_size=1, max_size=4), st.booleans())
def test_any_lengths(lengths: list[tuple[int, int]], is_causal: bool) -> None:
    """Requests without queries, without a KV, and with more queries than KV, whose first rows see nothing."""
    batch = Paged([q for q, _ in lengths], [kv for _, kv in lengths])
    result = batch.planned(causal=is_causal).run(batch.q, batch.cache, return_lse=True)
    assert_equal(result, batch.expected(loops.causal if is_causal else loops.full))


def test_a_row_that_sees_nothing() -> None:
    batch = Paged([3], [1])
    out, lse = batch.planned(causal=True).run(batch.q, batch.cache, return_lse=True)
    assert lse[:2].tolist() == [[-math.inf] * HEADS] * 2
    assert out[:2].abs().max() == 0


def random_masks(batch: Paged) -> list[torch.Tensor]:
    return [torch.rand(q, kv) < 0.5 for q, kv in zip(batch.q_lens, batch.kv_lens, strict=True)]


def flat(masks: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([mask.flatten() for mask in masks])


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph wrapper"])
def test_custom_mask(graph: bool) -> None:
    batch = Paged([2, 1, 5], [7, 1, 5])
    masks = random_masks(batch)
    wrapper = graph_wrapper(batch) if graph else prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE)
    wrapper.plan(*batch.arguments, custom_mask=flat(masks), causal=True, **batch.dtypes)
    assert_equal(wrapper.run(batch.q, batch.cache, return_lse=True), batch.expected(PerRequest(masks)))


def test_custom_mask_in_a_window() -> None:
    batch = Paged([3], [7])
    masks = random_masks(batch)
    wrapper = batch.planned(custom_mask=flat(masks), window_left=1)
    seen = loops.within(1, PerRequest(masks)(0))
    assert_equal(wrapper.run(batch.q, batch.cache, return_lse=True), batch.expected(seen))


def test_packed_mask_of_one_request() -> None:
    batch = Paged([3], [7])
    masks = random_masks(batch)
    packed, _ = segment_packbits(flat(masks), int32([0, 21]), "little")
    wrapper = batch.planned(packed_custom_mask=packed)
    assert_equal(wrapper.run(batch.q, batch.cache, return_lse=True), batch.expected(PerRequest(masks)))


def test_packed_mask_of_several_requests_is_refused() -> None:
    """FlashInfer would look for the second one's bits at byte q_len * kv_len, not where they are."""
    batch = Paged([3, 2], [7, 2])
    packed, _ = segment_packbits(flat(random_masks(batch)), int32([0, 21, 25]), "little")
    with pytest.raises(UnsupportedCombination, match="Pass custom_mask"):
        batch.planned(packed_custom_mask=packed)


def test_a_plan_without_a_mask_forgets_the_last_one() -> None:
    batch = Paged([3], [7])
    wrapper = batch.planned(custom_mask=flat(random_masks(batch)))
    wrapper.plan(*batch.arguments, causal=True, **batch.dtypes)
    assert_equal(wrapper.run(batch.q, batch.cache, return_lse=True), batch.expected(loops.causal))


def test_a_graph_wrapper_reads_the_mask_that_its_buffer_holds() -> None:
    batch = Paged([3], [7])
    masks = random_masks(batch)
    wrapper = graph_wrapper(batch)
    wrapper.plan(*batch.arguments, custom_mask=torch.ones(21, dtype=torch.bool), **batch.dtypes)
    packed, _ = segment_packbits(flat(masks), int32([0, 21]), "little")
    wrapper._custom_mask_buf[: len(packed)] = packed
    assert_equal(wrapper.run(batch.q, batch.cache, return_lse=True), batch.expected(PerRequest(masks)))


def test_rotary_positions_are_those_in_the_kv() -> None:
    batch = Paged([2, 3], [5, 3])
    result = batch.planned(pos_encoding_mode="ROPE_LLAMA", rope_theta=100.0, rope_scale=2.0).run(
        batch.q, batch.cache, return_lse=True
    )
    for request, rows in enumerate(batch.q.split(batch.q_lens)):
        kv_len = batch.kv_lens[request]
        batch.q[sum(batch.q_lens[:request]) :][: len(rows)] = turned(rows, range(kv_len - len(rows), kv_len))
        keys, values = batch.kv[request]
        batch.kv[request] = turned(keys, range(kv_len)), values
    assert_equal(result, batch.expected())


def turned(x: torch.Tensor, positions: Any) -> torch.Tensor:
    result = x.clone()
    for row, position in enumerate(positions):
        for pair in range(DIM // 2):
            angle = position / 2.0 * 100.0 ** (-2 * pair / DIM)
            one, other = x[row, :, pair], x[row, :, pair + DIM // 2]
            result[row, :, pair] = one * math.cos(angle) - other * math.sin(angle)
            result[row, :, pair + DIM // 2] = other * math.cos(angle) + one * math.sin(angle)
    return result


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_kv_of_other_types_with_scales(dtype: Any) -> None:
    batch = Paged([2, 1], [7, 4], dtype=dtype)
    wrapper = batch.planned()
    result = wrapper.run(batch.q, batch.cache, q_scale=0.5, k_scale=torch.tensor([0.7]), v_scale=3.0, return_lse=True)
    out, lse = batch.expected(scale=0.5 * 0.7 / math.sqrt(DIM))
    assert_equal(result, (3 * out, lse))


def test_scales_of_tokens_and_heads() -> None:
    batch = Paged([2, 1], [7, 4], dtype=torch.float8_e4m3fn)
    batch.q = batch.q.half()
    scales = tuple(torch.rand(pool.shape[:3]) for pool in batch.cache)
    wrapper = prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE)
    wrapper.plan(
        *batch.arguments, q_data_type="float16", kv_data_type=batch.dtype, o_data_type=torch.float32,
        use_token_head_sf=True,
    )  # fmt: skip
    starts = batch.page_indptr.tolist()
    for request, kv_len in enumerate(batch.kv_lens):
        pages = batch.indices[starts[request] : starts[request + 1]].long()
        by_token = (scale[pages].flatten(0, 1)[:kv_len].unsqueeze(-1) for scale in scales)
        keys, values = (part.float() * scale for part, scale in zip(batch.kv[request], by_token, strict=True))
        batch.kv[request] = keys, values
    assert_equal(wrapper.run(batch.q, batch.cache, kv_cache_sf=scales, return_lse=True), batch.expected())
    with pytest.raises(InvalidArgument, match="kv_cache_sf"):
        wrapper.run(batch.q, batch.cache)


def test_values_of_another_dim() -> None:
    batch = Paged([2, 1], [7, 4], vo=8)
    assert_equal(batch.planned().run(batch.q, batch.cache, return_lse=True), batch.expected())


def test_sinks() -> None:
    batch = Paged([2, 1], [7, 4])
    sinks = [0.3, -1.0, 2.0, 0.0]
    out = batch.planned(causal=True).run(batch.q, batch.cache, sinks=torch.tensor(sinks))
    torch.testing.assert_close(out.double(), batch.expected(loops.causal, sinks=sinks)[0], **EXACT)
    with pytest.raises(UnsupportedArgument, match="sinks"):
        batch.planned().run(batch.q, batch.cache, sinks=torch.tensor(sinks), return_lse=True)


class TestOutputs:
    def test_given_ones_are_written_and_returned(self) -> None:
        batch = Paged([2, 1], [7, 4])
        out, lse = torch.full((3, HEADS, DIM), math.nan), torch.full((3, HEADS), math.nan)
        result = batch.planned().run(batch.q, batch.cache, out=out, lse=lse, return_lse=True)
        assert [tensor.data_ptr() for tensor in result] == [out.data_ptr(), lse.data_ptr()]
        assert_equal((out, lse), batch.expected())

    def test_base_and_layout_of_the_log_sum_exp(self) -> None:
        batch = Paged([2, 1], [7, 4])
        wrapper, (_, expected) = batch.planned(), batch.expected()
        _, natural = wrapper.run(batch.q, batch.cache, return_lse=True, lse_base="ln")
        _, by_head = wrapper.run_return_lse(batch.q, batch.cache, lse_layout="HN")
        torch.testing.assert_close(natural.double(), expected * math.log(2), **EXACT)
        torch.testing.assert_close(by_head.double(), expected.T.contiguous(), **EXACT)
        assert by_head.is_contiguous()

    def test_output_dtype(self) -> None:
        batch = Paged([2, 1], [7, 4])
        out = batch.planned(o_data_type="bfloat16").run(batch.q, batch.cache)
        assert torch.equal(out, batch.planned().run(batch.q, batch.cache).bfloat16())

    def test_accumulated_in_float64(self) -> None:
        batch = Paged([2, 1], [7, 4])
        wrapper = batch.planned(o_data_type=torch.float64)
        with accumulate_in(torch.float64):
            out = wrapper.run(batch.q, batch.cache)
        torch.testing.assert_close(out, batch.expected()[0], rtol=1e-13, atol=1e-14)
        assert (wrapper.run(batch.q, batch.cache) - out).abs().max() > 1e-12, "float32 by itself"


def graph_wrapper(batch: Paged, **options: Any) -> Any:
    return prefill.BatchPrefillWithPagedKVCacheWrapper(
        WORKSPACE, batch.layout, use_cuda_graph=True,
        qo_indptr_buf=torch.zeros(len(batch.q_lens) + 1, dtype=torch.int32),
        paged_kv_indptr_buf=torch.zeros(len(batch.q_lens) + 1, dtype=torch.int32),
        paged_kv_indices_buf=torch.zeros(40, dtype=torch.int32),
        paged_kv_last_page_len_buf=torch.zeros(len(batch.q_lens), dtype=torch.int32),
        custom_mask_buf=torch.zeros(100, dtype=torch.uint8),
        mask_indptr_buf=torch.zeros(len(batch.q_lens) + 1, dtype=torch.int32), **options,
    )  # fmt: skip


class TestGraphWrapper:
    def test_plans_go_into_its_buffers(self) -> None:
        batch = Paged([2, 2], [7, 4])
        wrapper = graph_wrapper(batch)
        wrapper._custom_mask_buf = wrapper._mask_indptr_buf = None
        held = wrapper._paged_kv_indices_buf
        wrapper.plan(*batch.arguments, causal=True, **batch.dtypes)
        assert wrapper._paged_kv_indices_buf is held
        assert torch.equal(held[: len(batch.indices)], batch.indices)
        assert_equal(wrapper.run(batch.q, batch.cache, return_lse=True), batch.expected(loops.causal))

    @pytest.mark.parametrize("kind", ["paged", "ragged"])
    def test_a_hint_that_does_not_describe_the_batch(self, kind: str) -> None:
        batch = Paged([2, 3], [7, 4])
        if kind == "paged":
            wrapper, arguments = graph_wrapper(batch), batch.arguments
            eager = prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, batch.layout)
        else:
            held = [torch.zeros(3, dtype=torch.int32) for _ in range(2)]
            wrapper = prefill.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, "NHD", True, *held)
            arguments = (indptr(batch.q_lens), indptr(batch.kv_lens), *batch.arguments[4:7])
            eager = prefill.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, "NHD")
        if kind == "paged":
            wrapper._custom_mask_buf = wrapper._mask_indptr_buf = None
        with pytest.warns(CompatWarning, match="uniform_q_len=2 does not describe this batch"):
            wrapper.plan(*arguments, uniform_q_len=2, **batch.dtypes)
        with warnings.catch_warnings(action="error"):
            eager.plan(*arguments, uniform_q_len=2, **batch.dtypes)
            for nothing in (0, -1, None):
                wrapper.plan(*arguments, uniform_q_len=nothing, **batch.dtypes)

    def test_fast_prefill_plan(self) -> None:
        batch, other = Paged([2, 2], [7, 4]), Paged([2, 2], [3, 9])
        wrapper = graph_wrapper(batch)
        wrapper.plan(*batch.arguments, custom_mask=flat(random_masks(batch)), logits_soft_cap=0.5, **batch.dtypes)
        masks = random_masks(other)
        prefill.fast_prefill_plan(
            wrapper, *other.arguments, custom_mask=flat(masks), **other.dtypes, qo_indptr_host=indptr(other.q_lens),
            kv_indptr_host=other.page_indptr, kv_lens_host=int32(other.kv_lens), max_q_len=2, max_kv_len=9,
        )  # fmt: skip
        assert_equal(wrapper.run(other.q, other.cache, return_lse=True), other.expected(PerRequest(masks), cap=0.5))

    def test_fast_prefill_plan_keeps_the_kind(self) -> None:
        batch = Paged([2, 2], [7, 4])
        host = {
            "qo_indptr_host": indptr(batch.q_lens), "kv_indptr_host": batch.page_indptr,
            "kv_lens_host": int32(batch.kv_lens), "max_q_len": 2, "max_kv_len": 7,
        }  # fmt: skip
        with pytest.raises(InvalidPlan, match="planned"):
            prefill.fast_prefill_plan(graph_wrapper(batch), *batch.arguments, **batch.dtypes, **host)
        wrapper = graph_wrapper(batch)
        wrapper._custom_mask_buf = wrapper._mask_indptr_buf = None
        wrapper.plan(*batch.arguments, causal=True, **batch.dtypes)
        with pytest.raises(InvalidPlan, match="causal=False"):
            prefill.fast_prefill_plan(wrapper, *batch.arguments, **batch.dtypes, **host)
        with pytest.raises(InvalidPlan, match="not every request has 3 query rows"):
            prefill.fast_prefill_plan(wrapper, *batch.arguments, causal=True, uniform_q_len=3, **batch.dtypes, **host)

    def test_what_does_not_fit(self) -> None:
        batch = Paged([2, 2], [7, 4])
        wrapper = graph_wrapper(batch)
        wrapper.plan(*batch.arguments, custom_mask=flat(random_masks(batch)), **batch.dtypes)
        for other, match in (
            (Paged([2, 2, 1], [7, 4, 1]), "3 requests"),
            (Paged([3, 2], [7, 4]), "5 query rows"),
            (Paged([2, 2], [90, 60]), "_paged_kv_indices_buf has 50"),
        ):
            with pytest.raises(InvalidPlan, match=match):
                wrapper.plan(*other.arguments, **other.dtypes)

    def test_more_rows_with_a_capacity(self) -> None:
        batch, more = Paged([2, 2], [7, 4]), Paged([3, 2], [7, 4])
        wrapper = graph_wrapper(batch, max_total_num_rows=5)
        for planned in (batch, more):
            masks = random_masks(planned)
            wrapper.plan(*planned.arguments, custom_mask=flat(masks), **planned.dtypes)
            assert_equal(wrapper.run(planned.q, planned.cache, return_lse=True), planned.expected(PerRequest(masks)))

    def test_missing_buffers(self) -> None:
        with pytest.raises(InvalidPlan, match="qo_indptr_buf must be a tensor"):
            prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, use_cuda_graph=True)
        with pytest.raises(InvalidPlan, match="max_total_num_rows"):
            prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, max_total_num_rows=3)


class Ragged:
    def __init__(self, q_lens: list[int], kv_lens: list[int], dtype: Any = torch.float32) -> None:
        torch.manual_seed(3)
        self.q_lens, self.kv_lens = q_lens, kv_lens
        self.q = torch.randn(sum(q_lens), HEADS, DIM)
        self.k, self.v = (torch.randn(sum(kv_lens), KV_HEADS, DIM).to(dtype) for _ in range(2))

    def expected(self, sees: Any = loops.full, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        parts = zip(self.q.split(self.q_lens), self.k.split(self.kv_lens), self.v.split(self.kv_lens), strict=True)
        results = [loops.attention(*part, sees, **options) for part in parts]
        return torch.cat([out for out, _ in results]), torch.cat([lse for _, lse in results])


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("kind", KINDS)
def test_ragged_prefill(kind: str, layout: str) -> None:
    options, sees, formula = KINDS[kind]
    batch = Ragged([2, 1, 5], [7, 1, 5])
    wrapper = prefill.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, layout)
    starts = indptr(batch.q_lens), indptr(batch.kv_lens)
    wrapper.plan(*starts, HEADS, KV_HEADS, DIM, q_data_type="float32", **options)
    k, v = (batch.k, batch.v) if layout == "NHD" else (batch.k.transpose(0, 1), batch.v.transpose(0, 1))
    assert_equal(wrapper.run(batch.q, k, v, return_lse=True), batch.expected(sees, **formula))


def test_ragged_scales_count_for_an_fp8_kv() -> None:
    batch = Ragged([2], [7], torch.float8_e4m3fn)
    wrapper = prefill.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE)
    starts = indptr(batch.q_lens), indptr(batch.kv_lens)
    wrapper.plan(*starts, HEADS, KV_HEADS, DIM, q_data_type=torch.float32, kv_data_type=batch.k.dtype)
    result = wrapper.run(batch.q, batch.k, batch.v, k_scale=0.5, v_scale=2.0, return_lse=True)
    out, lse = batch.expected(scale=0.5 / math.sqrt(DIM))
    assert_equal(result, (2 * out, lse))
    with pytest.raises(UnsupportedArgument, match="q_scale"):
        wrapper.run(batch.q, batch.k, batch.v, q_scale=0.5)


def test_ragged_host_copies() -> None:
    batch = Ragged([2, 1], [7, 4])
    wrapper = prefill.BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE)
    starts = indptr(batch.q_lens), indptr(batch.kv_lens)
    plan = {"num_qo_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim_qk": DIM, "q_data_type": torch.float32}
    wrapper.plan(*starts, **plan, qo_indptr_cpu=starts[0], kv_indptr_cpu=starts[1])
    assert_equal(wrapper.run(batch.q, batch.k, batch.v, return_lse=True), batch.expected())
    with pytest.raises(InvalidPlan, match="kv_indptr_cpu"):
        wrapper.plan(*starts, **plan, qo_indptr_cpu=starts[0], kv_indptr_cpu=starts[1].long())


class TestDecode:
    def planned(self, batch: Paged, q_len: int = 1, **options: Any) -> Any:
        wrapper = decode.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE, batch.layout, use_tensor_cores=True)
        wrapper.plan(*batch.arguments[1:], q_len_per_req=q_len, **batch.dtypes, **options)
        return wrapper

    @pytest.mark.parametrize("kind", ["full", "soft cap", "scale"])
    def test_one_token(self, kind: str) -> None:
        options, _, formula = KINDS[kind]
        batch = Paged([1, 1, 1], [7, 1, 5], layout="HND")
        options = {name: value for name, value in options.items() if name != "causal"}
        result = self.planned(batch, **options).run(batch.q, batch.cache, return_lse=True)
        assert_equal(result, batch.expected(**formula))

    def test_window(self) -> None:
        batch = Paged([1, 1], [7, 2])
        result = self.planned(batch, window_left=3).run(batch.q, batch.cache, return_lse=True)
        assert_equal(result, batch.expected(loops.within(3)))

    def test_several_tokens_are_causal(self) -> None:
        batch = Paged([3, 3], [7, 3])
        result = self.planned(batch, 3).run(batch.q, batch.cache, return_lse=True)
        assert_equal(result, batch.expected(loops.causal))

    def test_scales(self) -> None:
        batch = Paged([1, 1], [7, 2], dtype=torch.float8_e5m2)
        result = self.planned(batch).run(batch.q, batch.cache, k_scale=0.5, v_scale=0.1, return_lse=True)
        out, lse = batch.expected(scale=0.5 / math.sqrt(DIM))
        assert_equal(result, (0.1 * out, lse))

    def test_forward_changes_the_kind(self) -> None:
        batch = Paged([1, 1], [7, 2])
        wrapper = self.planned(batch)
        out, lse = wrapper.forward_return_lse(batch.q, batch.cache, sm_scale=0.3, logits_soft_cap=2.0)
        assert_equal((out, lse), batch.expected(scale=0.3, cap=2.0))
        assert torch.equal(wrapper.forward(batch.q, batch.cache, sm_scale=0.3, logits_soft_cap=2.0), out)

    def test_graph_wrapper_and_fast_plan(self) -> None:
        batch, other = Paged([1, 1], [7, 2]), Paged([1, 1], [4, 8])
        wrapper = decode.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(
            WORKSPACE, torch.zeros(3, dtype=torch.int32), torch.zeros(9, dtype=torch.int32),
            torch.zeros(2, dtype=torch.int32),
        )  # fmt: skip
        wrapper.plan(*batch.arguments[1:], **batch.dtypes)
        assert_equal(wrapper.run(batch.q, batch.cache, return_lse=True), batch.expected())
        decode.fast_decode_plan(wrapper, *other.arguments[1:], **other.dtypes)
        assert_equal(wrapper.run(other.q, other.cache, return_lse=True), other.expected())
        with pytest.raises(InvalidPlan, match="3 requests"):
            wrapper.plan(*Paged([1] * 3, [1] * 3).arguments[1:], **batch.dtypes)

    def test_errors(self) -> None:
        batch = Paged([2, 2], [7, 1])
        with pytest.raises(InvalidPlan, match="1 tokens of KV"):
            self.planned(batch, 2)
        wrapper = decode.BatchDecodeWithPagedKVCacheWrapper(WORKSPACE)
        with pytest.raises(InvalidPlan, match="use_tensor_cores"):
            wrapper.plan(*batch.arguments[1:], q_len_per_req=2, **batch.dtypes)
        with pytest.raises(InvalidPlan, match="at least 1"):
            wrapper.plan(*batch.arguments[1:], q_len_per_req=0, **batch.dtypes)
        with pytest.raises(InvalidPlan, match="before plan"):
            wrapper.run(batch.q, batch.cache)

    def test_the_facade_takes_the_tail_by_position(self) -> None:
        batch = Paged([1, 1], [7, 2])
        wrapper = lookup.find("decode.BatchDecodeWithPagedKVCacheWrapper")(WORKSPACE)
        with pytest.warns(DeprecationWarning, match="after page_size"):
            wrapper.plan(*batch.arguments[1:], "NONE", 3, 0.0, torch.float32)
        assert_equal(wrapper.run(batch.q, batch.cache, return_lse=True), batch.expected(loops.within(3)))
        with pytest.raises(UnsupportedArgument, match="window_left where 'x'"):
            wrapper.plan(*batch.arguments[1:], "NONE", "x")


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_single_request(layout: str) -> None:
    batch = Ragged([3], [7])
    k, v = (batch.k, batch.v) if layout == "NHD" else (batch.k.transpose(0, 1), batch.v.transpose(0, 1))
    result = prefill.single_prefill_with_kv_cache_return_lse(batch.q, k, v, causal=True, kv_layout=layout)
    assert_equal(result, batch.expected(loops.causal))
    mask = torch.rand(3, 7) < 0.5
    out = prefill.single_prefill_with_kv_cache(batch.q, k, v, custom_mask=mask.flatten(), kv_layout=layout)
    seen = PerRequest([mask])(0)
    torch.testing.assert_close(out.double(), batch.expected(seen)[0], **EXACT)
    one = Ragged([1], [7])
    out, lse = decode.single_decode_with_kv_cache(
        one.q[0], one.k, one.v, logits_soft_cap=2.0, q_scale=2.0, v_scale=3.0, return_lse=True
    )
    expected = one.expected(scale=2 / math.sqrt(DIM), cap=2.0)
    assert_equal((out, lse), (3 * expected[0][0], expected[1][0]))


class TestErrors:
    batch = Paged([2, 1], [7, 4])

    def test_shapes_and_dtypes_other_than_planned(self) -> None:
        batch, wrapper = self.batch, self.batch.planned()
        for q, cache, match in (
            (batch.q[:2], batch.cache, "2 rows"),
            (batch.q.half(), batch.cache, "q is torch.float16"),
            (batch.q, tuple(pool.half() for pool in batch.cache), "k is torch.float16"),
            (batch.q, tuple(pool[:, :2] for pool in batch.cache), "planned were pages"),
            (batch.q, tuple(pool[:2] for pool in batch.cache), "the cache has 2 pages"),
            (batch.q[..., :8], batch.cache, "heads are 4 of 16"),
            (batch.q, [1], "must be a tuple or a tensor"),
        ):
            with pytest.raises(InvalidArgument, match=match):
                wrapper.run(q, cache)
        with pytest.raises(InvalidArgument, match="out must be"):
            wrapper.run(batch.q, batch.cache, out=torch.empty(3, HEADS, DIM, dtype=torch.float16))
        with pytest.raises(InvalidArgument, match="window_left is 3"):
            wrapper.run(batch.q, batch.cache, window_left=3)
        with pytest.raises(InvalidArgument, match="lse_base"):
            wrapper.run(batch.q, batch.cache, lse_base="10")

    def test_plans_that_do_not_fit_together(self) -> None:
        arguments = list(self.batch.arguments)
        for position, value, match in (
            (0, indptr([2]), "2, 3 and 2 entries"),
            (2, int32([0]), "1 indices"),
            (4, 3, "multiple of 2"),
            (0, int32([0, 3, 2]), "an indptr decreases"),
        ):
            wrapper = prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE)
            with pytest.raises(InvalidPlan, match=match):
                wrapper.plan(*arguments[:position], value, *arguments[position + 1 :])
        with pytest.raises(InvalidPlan, match="custom_mask has 5 entries; the batch has 18"):
            self.batch.planned(custom_mask=torch.ones(5, dtype=torch.bool))
        with pytest.raises(InvalidPlan, match="20 tokens in 3 pages"):
            self.batch.planned(seq_lens=int32([20, 4]))

    def test_what_only_flashinfer_has(self) -> None:
        for options in ({"pos_encoding_mode": "ALIBI"}, {"prefix_len_ptr": int32([1, 1])}):
            with pytest.raises(UnsupportedArgument, match=f"{next(iter(options))}.*reference in plain PyTorch has not"):
                self.batch.planned(**options)
        with pytest.raises(UnsupportedArgument, match="jit_args"):
            prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, jit_args=["x"])
        with pytest.raises(UnsupportedArgument, match="skip_softmax"):
            self.batch.planned().run(self.batch.q, self.batch.cache, skip_softmax_threshold_scale_factor=1.0)
        with pytest.raises(UnsupportedArgument, match="kv_cache_sf"):
            self.batch.planned().run(self.batch.q, tuple(pool.to(torch.uint8) for pool in self.batch.cache))
        wrapper = self.batch.planned()
        with pytest.raises(FeatureUnavailable, match=r"BatchPrefillWithPagedKVCacheWrapper\._cached_module"):
            getattr(wrapper, "_cached_module")  # noqa: B009
        assert not hasattr(self.batch.planned(), "prewarm_paged_kv_stride_variant")

    def test_made_with(self) -> None:
        with pytest.raises(KeyError, match="kv_layout"):
            prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, "NDH")
        with pytest.raises(InvalidArgument, match="backend is 'fa9'"):
            prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, backend="fa9")
        wrapper = prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, backend="trtllm-gen")
        with pytest.raises(UnsupportedCombination, match="non-causal window"):
            wrapper.plan(*self.batch.arguments, window_left=3)


def test_an_auto_wrapper_is_pinned() -> None:
    pinned = lookup.find("prefill.use_deterministic_backend")(prefill.BatchPrefillWithPagedKVCacheWrapper(WORKSPACE))
    assert pinned._backend == "fa2"
    assert pinned.workspace_size(*Paged([1], [1]).arguments, uniform_q_len=1) == (0, 0)

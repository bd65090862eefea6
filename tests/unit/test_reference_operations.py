"""Merging, appending, norms, rotary embeddings, bits and top-k of the reference against formulas written out here."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the reference is written in PyTorch")

import loops  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from flashinfer_compat.errors import InvalidArgument  # noqa: E402
from flashinfer_compat.reference import cascade, norm, page, quantization, rope, topk  # noqa: E402

HALVES = [torch.float16, torch.bfloat16]


def int32(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


class TestMerge:
    """Attention over parts, merged, is attention over all."""

    def parts(self) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], tuple[torch.Tensor, torch.Tensor]]:
        torch.manual_seed(1)
        q, k, v = torch.randn(3, 4, 8), torch.randn(9, 2, 8), torch.randn(9, 2, 8)
        spans = [slice(0, 2), slice(2, 3), slice(3, 9)]
        return [self.state(q, k[span], v[span]) for span in spans], loops.attention(q, k, v)

    @staticmethod
    def state(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = loops.attention(q, k, v)
        return out.float(), lse.float()

    def assert_merged(self, result: Any, expected: tuple[torch.Tensor, torch.Tensor]) -> None:
        for got, right in zip(result, expected, strict=True):
            assert got.dtype == torch.float32
            torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=1e-6)

    def test_two(self) -> None:
        (a, b, c), whole = self.parts()
        self.assert_merged(cascade.merge_state(*cascade.merge_state(*a, *b), *c), whole)

    def test_several(self) -> None:
        parts, whole = self.parts()
        outputs, sums = zip(*parts, strict=True)
        self.assert_merged(cascade.merge_states(torch.stack(outputs, 1), torch.stack(sums, 1)), whole)

    def test_in_place_where_the_mask_says_so(self) -> None:
        (a, b, c), _ = self.parts()
        right, before = cascade.merge_state(*a, *b), [tensor.clone() for tensor in a]
        cascade.merge_state_in_place(*a, *b, mask=torch.tensor([True, False, True]))
        for got, merged, kept in zip(a, right, before, strict=True):
            assert torch.equal(got[::2], merged[::2])
            assert torch.equal(got[1], kept[1])
        cascade.merge_state_in_place(*a, *c)
        assert torch.equal(a[0][0], cascade.merge_state(*(part[:1] for part in (*right, *c)))[0][0])

    def test_an_empty_part_changes_nothing(self) -> None:
        (a, _, _), _ = self.parts()
        nothing = torch.randn_like(a[0]), torch.full_like(a[1], -math.inf)
        out, lse = cascade.merge_state(*a, *nothing)
        torch.testing.assert_close(out, a[0])
        torch.testing.assert_close(lse, a[1])
        out, lse = cascade.merge_state(*nothing, *nothing)
        assert out.abs().max() == 0
        assert (lse == -math.inf).all()

    def test_sums_far_apart(self) -> None:
        v, s = torch.ones(1, 2, 1, 8), torch.tensor([[[-4000.0], [4000.0]]])
        out, lse = cascade.merge_states(v, s)
        assert (out.flatten().tolist(), lse.item()) == ([1.0] * 8, 4000.0)

    def test_rounded_once(self) -> None:
        (a, b, _), _ = self.parts()
        halves = [(out.bfloat16(), lse) for out, lse in (a, b)]
        out, _ = cascade.merge_state(*halves[0], *halves[1])
        widened = cascade.merge_state(halves[0][0].float(), halves[0][1], halves[1][0].float(), halves[1][1])[0]
        assert torch.equal(out, widened.bfloat16())

    def test_shapes(self) -> None:
        (a, b, _), _ = self.parts()
        with pytest.raises(InvalidArgument, match="v_b and s_b"):
            cascade.merge_state(*a, b[0][:2], b[1])
        with pytest.raises(InvalidArgument, match="rows, parts, heads, dim"):
            cascade.merge_states(*a)

    def test_levels(self) -> None:
        """A shared prefix of one page and own suffixes; causal in the last level alone."""
        torch.manual_seed(2)
        cache = torch.randn(4, 2, 4, 2, 8)
        q = torch.randn(4, 4, 8)
        wrapper = cascade.MultiLevelCascadeAttentionWrapper(2, torch.empty(1))
        wrapper.plan(
            [int32([0, 4]), int32([0, 2, 4])], [int32([0, 1]), int32([0, 1, 3])], [int32([3]), int32([0, 2, 1])],
            [int32([4]), int32([2, 1])], 4, 2, 8, 4, causal=True, q_data_type=torch.float32,
        )  # fmt: skip
        out = wrapper.run(q, cache)
        for rows, pages, length in ((slice(0, 2), [3, 0], 4 + 2), (slice(2, 4), [3, 2, 1], 4 + 5)):
            keys, values = (cache[pages, which].flatten(0, 1)[:length] for which in range(2))
            expected, _ = loops.attention(q[rows], keys, values, loops.causal)
            torch.testing.assert_close(out[rows].double(), expected, rtol=1e-5, atol=1e-6)


class TestPages:
    @pytest.mark.parametrize("layout", ["NHD", "HND"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
    def test_append(self, layout: str, dtype: Any) -> None:
        torch.manual_seed(1)
        page_size, appended, lengths = 4, [3, 0, 6], [5, 2, 9]
        pages = [[7, 2], [0], [5, 1, 4]]
        keys, values = (torch.randn(sum(appended), 2, 8).to(dtype) for _ in range(2))
        cache = torch.zeros(8, 2, page_size, 2, 8).to(dtype)
        cache = cache if layout == "NHD" else cache.transpose(2, 3).contiguous()
        indptr, last = int32([0, 2, 3, 6]), int32([1, 2, 1])
        seq_lens = page.get_seq_lens(indptr, last, page_size)
        assert seq_lens.tolist() == lengths
        requests, positions = page.get_batch_indices_positions(int32([0, 3, 3, 9]), seq_lens, 9)
        assert requests.tolist() == [0, 0, 0, 2, 2, 2, 2, 2, 2]
        assert positions.tolist() == [2, 3, 4, 3, 4, 5, 6, 7, 8]
        page.append_paged_kv_cache(
            keys, values, requests, positions, cache, int32([p for own in pages for p in own]), indptr, last, layout
        )
        by_token = (cache if layout == "NHD" else cache.transpose(2, 3)).float()
        written = torch.zeros_like(by_token, dtype=torch.bool)
        for row, (request, position) in enumerate(zip(requests.tolist(), positions.tolist(), strict=True)):
            slot = pages[request][position // page_size], slice(None), position % page_size
            assert torch.equal(by_token[slot], torch.stack([keys[row], values[row]]).float())
            written[slot] = True
        assert by_token[~written].abs().max() == 0

    def test_append_to_mla(self) -> None:
        ckv, kpe = torch.randn(2, 16), torch.randn(2, 4)
        caches = torch.zeros(3, 2, 16), torch.zeros(3, 2, 4)
        page.append_paged_mla_kv_cache(
            ckv, kpe, int32([0, 0]), int32([1, 2]), *caches, int32([2, 0]), int32([0, 2]), int32([1])
        )
        for new, pool in zip((ckv, kpe), caches, strict=True):
            assert torch.equal(pool[2, 1], new[0])
            assert torch.equal(pool[0, 0], new[1])
            assert pool.count_nonzero() == new.numel()

    def test_outputs_given_and_rows_beyond(self) -> None:
        given = torch.full((5,), 9, dtype=torch.int32), torch.full((5,), 9, dtype=torch.int32)
        result = page.get_batch_indices_positions(int32([0, 1, 3]), torch.tensor([4, 4]), 5, *given)
        assert [one.data_ptr() for one in result] == [one.data_ptr() for one in given]
        assert given[0].tolist() == [0, 1, 1, -1, -1]
        assert given[1].tolist()[:3] == [3, 2, 3]

    def test_seq_lens_of_a_request_without_pages(self) -> None:
        assert page.get_seq_lens(int32([0, 0, 2]), int32([0, 3]), 16).tolist() == [0, 19]

    def test_errors(self) -> None:
        cache, new = torch.zeros(2, 2, 4, 2, 8), torch.zeros(1, 2, 8)
        one = int32([0])
        for key, indices, requests, match in (
            (new.half(), one, one, "float16"),
            (new[..., :4], one, one, "append_key"),
            (new, int32([5]), one, "2 pages"),
            (new, one, int32([-1]), "no request"),
        ):
            with pytest.raises(InvalidArgument, match=match):
                page.append_paged_kv_cache(key, new, requests, one, cache, indices, int32([0, 1]), int32([1]))
        with pytest.raises(KeyError, match="kv_layout"):
            page.append_paged_kv_cache(new, new, one, one, cache, one, int32([0, 1]), int32([1]), "NDH")


def rms(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Row by row, in float64."""
    rows = [row / math.sqrt(float(row @ row) / len(row) + eps) for row in x.double().reshape(-1, x.size(-1))]
    return torch.stack(rows).view(x.shape)


@pytest.mark.parametrize("dtype", HALVES)
class TestNorm:
    def tensors(self, dtype: Any, *shape: int) -> list[torch.Tensor]:
        torch.manual_seed(4)
        return [torch.randn(*size).to(dtype) for size in (shape, shape, shape[-1:])]

    @pytest.mark.parametrize("shape", [(5, 32), (2, 3, 32)])
    @pytest.mark.parametrize(("name", "bias"), [("rmsnorm", 0), ("gemma_rmsnorm", 1)])
    def test_rmsnorm(self, dtype: Any, shape: tuple[int, ...], name: str, bias: int) -> None:
        x, _, weight = self.tensors(dtype, *shape)
        expected = (rms(x, 1e-3) * (bias + weight.double())).to(dtype)
        torch.testing.assert_close(getattr(norm, name)(x, weight, 1e-3), expected, rtol=2**-7, atol=0)
        out = torch.empty_like(x)
        assert getattr(norm, name)(x, weight, 1e-3, out=out) is out
        torch.testing.assert_close(out, expected, rtol=2**-7, atol=0)

    @pytest.mark.parametrize(("name", "bias"), [("fused_add_rmsnorm", 0), ("gemma_fused_add_rmsnorm", 1)])
    def test_fused_add(self, dtype: Any, name: str, bias: int) -> None:
        x, residual, weight = self.tensors(dtype, 5, 32)
        summed = x.double() + residual.double()
        expected = (rms(summed, 1e-6) * (bias + weight.double())).to(dtype)
        getattr(norm, name)(x, residual, weight)
        assert torch.equal(residual, summed.to(dtype))
        torch.testing.assert_close(x, expected, rtol=2**-7, atol=0)

    def test_quantised(self, dtype: Any) -> None:
        x, residual, weight = self.tensors(dtype, 5, 32)
        expected = (rms(x, 1e-6) * weight.double() / 0.25).clamp(-448, 448)
        out = torch.empty(5, 32, dtype=torch.float8_e4m3fn)
        norm.rmsnorm_quant(out, x, weight, 0.25)
        torch.testing.assert_close(out.double(), expected, rtol=2**-4, atol=2**-9)
        norm.rmsnorm_quant(out, x, weight * 0 + 4, torch.tensor([1e-3]))
        assert out.double().abs().max() == 448, "what is too large becomes the largest, not NaN"
        before, summed = x.clone(), x.double() + residual.double()
        norm.fused_add_rmsnorm_quant(out, x, residual, weight, 0.25)
        assert torch.equal(x, before)
        assert torch.equal(residual, summed.to(dtype))
        expected = rms(summed, 1e-6) * weight.double() / 0.25
        torch.testing.assert_close(out.double(), expected, rtol=2**-4, atol=2**-9)
        with pytest.raises(InvalidArgument, match="float8"):
            norm.rmsnorm_quant(x, x, weight, 1.0)

    def test_layernorm(self, dtype: Any) -> None:
        x, _, _ = self.tensors(dtype, 5, 32)
        gamma, beta = torch.randn(32), torch.randn(32)
        centred = x.double() - torch.stack([row.sum() / 32 for row in x.double()]).unsqueeze(1)
        expected = (rms(centred, 1e-6) * gamma.double() + beta.double()).to(dtype)
        torch.testing.assert_close(norm.layernorm(x, gamma, beta), expected, rtol=2**-7, atol=2**-7)


def turned(x: torch.Tensor, positions: list[int], angle: Any, dim: int, interleave: bool) -> torch.Tensor:
    """Pair by pair, in float64: `angle` gives the angle per position of a pair."""
    result = x.double().clone()
    for row, position in enumerate(positions):
        for pair in range(dim // 2):
            one, other = (2 * pair, 2 * pair + 1) if interleave else (pair, pair + dim // 2)
            cosine, sine = math.cos(position * angle(pair)), math.sin(position * angle(pair))
            a, b = x[row, :, one].double(), x[row, :, other].double()
            result[row, :, one], result[row, :, other] = a * cosine - b * sine, b * cosine + a * sine
    return result


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("rotary_dim", [None, 8])
class TestRope:
    indptr, offsets, positions = int32([0, 2, 5]), int32([3, 1000]), [3, 4, 1000, 1001, 1002]

    def assert_turned(self, name: str, angle: Any, rotary_dim: int | None, interleave: bool, **options: Any) -> None:
        torch.manual_seed(6)
        q, k = torch.randn(5, 3, 16), torch.randn(5, 2, 16)
        expected = [turned(x, self.positions, angle, rotary_dim or 16, interleave) for x in (q, k)]
        options |= {"rotary_dim": rotary_dim, "interleave": interleave}
        for suffix, where in (("", (self.indptr, self.offsets)), ("_pos_ids", (int32(self.positions),))):
            for got, right in zip(getattr(rope, name + suffix)(q, k, *where, **options), expected, strict=True):
                torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=1e-5)
            into = q.clone(), k.clone()
            assert getattr(rope, f"{name}{suffix}_inplace")(*into, *where, **options) is None
            for got, right in zip(into, expected, strict=True):
                torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=1e-5)

    def test_llama(self, rotary_dim: int | None, interleave: bool) -> None:
        dim = rotary_dim or 16
        self.assert_turned(
            "apply_rope", lambda pair: 100.0 ** (-2 * pair / dim) / 2, rotary_dim, interleave, rope_scale=2,
            rope_theta=100.0,
        )  # fmt: skip

    def test_llama31(self, rotary_dim: int | None, interleave: bool) -> None:
        dim, context, low, high, scale = rotary_dim or 16, 512, 1.0, 4.0, 8.0

        def angle(pair: int) -> float:
            own = 5e5 ** (-2 * pair / dim)
            wavelength = 2 * math.pi / own
            if wavelength < context / high:
                return own
            if wavelength > context / low:
                return own / scale
            smooth = (context / wavelength - low) / (high - low)
            return (1 - smooth) * own / scale + smooth * own

        self.assert_turned("apply_llama31_rope", angle, rotary_dim, interleave, old_context_len=context)

    def test_from_a_cache(self, rotary_dim: int | None, interleave: bool) -> None:
        torch.manual_seed(6)
        dim = rotary_dim or 16
        angles = torch.arange(1003).unsqueeze(1) * torch.rand(dim // 2).double()
        cache = torch.cat([angles.cos(), angles.sin()], dim=-1).float()
        query, key = torch.randn(5, 3 * 16), torch.randn(5, 2 * 16)
        rates = angles[1]
        expected = [
            turned(x.view(5, -1, 16), self.positions, lambda pair: float(rates[pair]), dim, interleave).view(x.shape)
            for x in (query, key)
        ]
        positions = torch.tensor(self.positions)
        got = rope.apply_rope_with_cos_sin_cache(positions, query, key, 16, cache, is_neox=not interleave)
        rope.apply_rope_with_cos_sin_cache_inplace(positions, query, key, 16, cache, is_neox=not interleave)
        for results in (got, (query, key)):
            for one, right in zip(results, expected, strict=True):
                torch.testing.assert_close(one.double(), right, rtol=1e-4, atol=1e-4)
        with pytest.raises(InvalidArgument, match="float32"):
            rope.apply_rope_with_cos_sin_cache(positions, query, key, 16, cache.half())


def packed_by_hand(bits: list[bool], order: str) -> list[int]:
    """Eight at a time, the missing ones of the last byte 0."""
    groups = [bits[start : start + 8] for start in range(0, len(bits), 8)]
    shift = (lambda index: index) if order == "little" else (lambda index: 7 - index)
    return [sum(bit << shift(index) for index, bit in enumerate(group)) for group in groups]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.booleans(), max_size=20), min_size=1, max_size=4), st.sampled_from(["big", "little"]))
def test_bits(segments: list[list[bool]], order: str) -> None:
    flat = [bit for segment in segments for bit in segment]
    assert quantization.packbits(torch.tensor(flat, dtype=torch.bool), order).tolist() == packed_by_hand(flat, order)
    lengths = torch.tensor([0] + [len(segment) for segment in segments]).cumsum(0)
    packed, starts = quantization.segment_packbits(torch.tensor(flat, dtype=torch.bool), lengths, order)
    for index, segment in enumerate(segments):
        assert packed[starts[index] : starts[index + 1]].tolist() == packed_by_hand(segment, order)


def test_bit_order() -> None:
    with pytest.raises(InvalidArgument, match="bitorder is 'middle'"):
        quantization.packbits(torch.ones(3), "middle")


def test_top_k() -> None:
    scores = torch.tensor([[1.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    values, indices = topk.top_k(scores, 2)
    assert (values.tolist(), indices.tolist()) == ([[3.0, 3.0], [0.0, 0.0]], [[1, 3], [0, 1]])
    assert indices.dtype == torch.int64
    assert topk.top_k(scores, 1, tie_break=2)[1].tolist() == [[3], [3]]
    with pytest.raises(InvalidArgument, match="k is 5"):
        topk.top_k(scores, 5)

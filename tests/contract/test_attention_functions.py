"""What the function-level lines of the attention tables refuse, convert and pass on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat import FeatureUnavailable, UnsupportedArgument, UnsupportedCombination
from flashinfer_compat.bridges import mla, trtllm

#: Stated, not asked of the package: releases with what 0.7.4 added (0.7.3 is tested on 0.7.4's code).
NEWEST = ("0.7.3", "0.7.4")


def context(**options: Any) -> Any:
    """trtllm_batch_context_with_kv_cache, with as little as it takes to be refused before it looks at a device."""
    required = dict.fromkeys(
        ("query", "kv_cache", "workspace_buffer", "block_tables", "seq_lens", "bmm1_scale", "bmm2_scale"), None
    )
    sizes = {"max_q_len": 1, "max_kv_len": 1, "batch_size": 1, "cum_seq_lens_q": None, "cum_seq_lens_kv": None}
    return flashinfer.prefill.trtllm_batch_context_with_kv_cache(**required, **sizes, **options)


def ragged_deepseek(**options: Any) -> Any:
    names = "query key value workspace_buffer seq_lens max_q_len max_kv_len bmm1_scale bmm2_scale o_sf_scale batch_size"
    required = dict.fromkeys([*names.split(), "cum_seq_lens_q", "cum_seq_lens_kv", "enable_pdl", "return_lse"])
    return flashinfer.prefill.trtllm_ragged_attention_deepseek(**required, **options)


@pytest.mark.parametrize(
    "options", [{"window_right": 4}, {"variable_window_token_starts": torch.ones(1)}, {"variable_window_token_ends": 1}]
)
def test_new_windows(release: str, options: dict[str, Any]) -> None:
    if release in NEWEST:
        pytest.skip("native there; its kernels need a Blackwell device")
    keyword = next(iter(options))
    with pytest.raises(
        UnsupportedArgument, match=rf"{keyword}=\): FlashInfer 0.7.4 and later have it; installed is {release}"
    ):
        context(**options)


def test_noncausal_window_of_context(release: str) -> None:
    if release in NEWEST:
        pytest.skip("native there: ValueError, behind checks that need a device")
    for caught in (ValueError, NotImplementedError, UnsupportedCombination):
        with pytest.raises(caught, match="window_right >= 0"):
            context(causal=False, window_left=4)


def test_noncausal_window_of_ragged(release: str) -> None:
    if release == "0.7.4":
        native = __import__("flashinfer").prefill.trtllm_ragged_attention_deepseek
        assert flashinfer.prefill.trtllm_ragged_attention_deepseek is native
        return
    for caught in (ValueError, NotImplementedError, UnsupportedCombination):
        with pytest.raises(caught, match="non-causal window needs a right bound"):
            ragged_deepseek(is_causal=False, window_left=4)


class IntLike:
    def __index__(self) -> int:
        return 7


def test_window_left_of_another_integer_type() -> None:
    assert type(trtllm.window_as_int(IntLike())) is int
    assert trtllm.window_as_int(IntLike()) == 7
    with pytest.raises(TypeError):
        context(window_left=2.5)


@pytest.mark.parametrize(
    ("keyword", "default", "other"), [("sparse_top_k", 0, 8), ("length_aware_schedule", False, True)]
)
def test_new_decode_keywords(release: str, keyword: str, default: Any, other: Any) -> None:
    native = __import__("flashinfer").decode.trtllm_batch_decode_with_kv_cache
    function = flashinfer.decode.trtllm_batch_decode_with_kv_cache
    if release in NEWEST:
        assert function is native
        return
    assert function.__globals__["_native"] is native
    with pytest.raises(UnsupportedArgument, match=rf"{keyword}=\): FlashInfer 0.7.4"):
        function(*[None] * 11, **{keyword: other})


def test_fp8_scales_of_single_prefill(release: str) -> None:
    q = torch.zeros(1, 1, 16)
    kv = torch.zeros(1, 1, 16).to(torch.float8_e4m3fn)
    if release == "0.7.4":
        assert flashinfer.single_prefill_with_kv_cache is __import__("flashinfer").single_prefill_with_kv_cache
        return
    with pytest.raises(UnsupportedCombination, match="0.7.4 and later"):
        flashinfer.single_prefill_with_kv_cache(q, kv, kv, kv_cache_sf=(q, q))


@pytest.mark.parametrize("name", ["trtllm_batch_decode_sparse_mla_dsv4", "batch_decode_sparse_mla_dsv4"])
def test_new_kv_formats(release: str, name: str) -> None:
    function = getattr(flashinfer.mla, name)
    if release in NEWEST:
        assert function is getattr(__import__("flashinfer").mla, name)
        return
    arguments = dict.fromkeys(("query", "swa_kv_cache", "workspace_buffer", "sparse_indices"), None)
    with pytest.raises(UnsupportedArgument, match="kv_cache_format='fp8_dsv41_inline'.*0.7.4.*Use fp8_dsv41"):
        function(*arguments.values(), kv_cache_format="fp8_dsv41_inline")


@pytest.mark.parametrize("backend", ["autotune", "cute-dsl-rubin-mtp"])
def test_new_mla_backends(release: str, backend: str) -> None:
    if release in NEWEST:
        pytest.skip("native there")
    with pytest.raises(UnsupportedArgument, match=f"backend={backend!r}.*0.7.4 and later"):
        flashinfer.mla.BatchMLAPagedAttentionWrapper(torch.zeros(16, dtype=torch.uint8), backend=backend)


def test_nvfp4_sparse_decode(release: str) -> None:
    if release == "0.7.1":
        assert not hasattr(flashinfer.mla, "nvfp4_sparse_mla_decode")
        with pytest.raises(FeatureUnavailable, match="0.7.2 and later have it; installed is 0.7.1. Dequantise"):
            flashinfer.mla.nvfp4_sparse_mla_decode  # noqa: B018
        with pytest.raises(ImportError, match="0.7.2 and later have it"):
            from flashinfer_compat.mla import nvfp4_sparse_mla_decode
    else:
        from flashinfer_compat.mla import nvfp4_sparse_mla_decode

        assert nvfp4_sparse_mla_decode is __import__("flashinfer").mla.nvfp4_sparse_mla_decode


def test_prepare_nvfp4_attention(release: str) -> None:
    function = flashinfer.prefill.prepare_nvfp4_attention
    if release != "0.7.1":
        with pytest.raises(UnsupportedCombination, match="causal=True"):
            function(None, None, None, None, causal=True, backend="cake")
    if release not in NEWEST:
        with pytest.raises(UnsupportedArgument, match="softmax_scale=.*0.7.4"):
            function(None, None, None, None, softmax_scale=0.5)


def test_determine_mla_backend(release: str) -> None:
    import flashinfer_compat.utils as utils

    vars(utils).pop("determine_mla_backend", None)
    if release == "0.7.1":
        assert utils.determine_mla_backend is __import__("flashinfer").utils.determine_mla_backend
        return
    with pytest.warns(DeprecationWarning, match="determine_mla_backend is gone"):
        function = utils.determine_mla_backend
    assert function.__name__ == "determine_mla_backend"


class TestMlaRows:
    """A query padded beyond the plan, which 0.7.4 refuses and earlier releases tolerated."""

    wrapper = SimpleNamespace(_planned_backend=SimpleNamespace(_planned_query_shape=(3, 2), _head_dim_ckv=8))
    older = SimpleNamespace(_planned_backend=SimpleNamespace())

    def test_is_cut(self) -> None:
        q_nope, q_pe = torch.randn(5, 2, 8), torch.randn(5, 2, 4)
        cut = mla.planned_rows(self.wrapper, q_nope, q_pe, None, None, None, True)
        assert torch.equal(cut[0], q_nope[:3])
        assert torch.equal(cut[1], q_pe[:3])
        out, lse = cut[5]
        assert (out.shape, lse.shape, lse.dtype) == ((5, 2, 8), (5, 2), torch.float32)
        assert (cut[3].data_ptr(), cut[3].shape) == (out.data_ptr(), (3, 2, 8))
        assert (cut[4].data_ptr(), cut[4].shape) == (lse.data_ptr(), (3, 2))
        assert mla.padded_result("cut", cut[5], True) == (out, lse)
        assert mla.padded_result("cut", cut[5], False) is out

    @pytest.mark.parametrize("split", [True, False])
    def test_structural_query_and_given_outputs(self, split: bool) -> None:
        query = (torch.randn(5, 2, 8), torch.randn(5, 2, 4)) if split else torch.randn(5, 2, 12)
        out, lse = torch.zeros(5, 2, 8), torch.zeros(5, 2)
        cut = mla.planned_rows(self.wrapper, None, None, query, out, lse, False)
        parts = cut[2] if split else (cut[2],)
        assert [part.shape[0] for part in parts] == [3] * len(parts)
        assert cut[5][0] is out
        assert cut[3].data_ptr() == out.data_ptr()

    @pytest.mark.parametrize("rows", [1, 3])
    def test_planned_rows_pass(self, rows: int) -> None:
        q = torch.randn(rows, 2, 8)
        assert mla.planned_rows(self.wrapper, q, q, None, None, None, False) == (q, q, None, None, None, None)

    def test_older_releases_pass(self) -> None:
        q = torch.randn(5, 2, 8)
        assert mla.planned_rows(self.older, q, q, None, None, None, False)[5] is None
        assert mla.padded_result("result", None, True) == "result"

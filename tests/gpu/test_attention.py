"""The wrappers through the facade, against fp32: prefill paged and ragged, decode on CUDA and on tensor cores."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flashinfer_compat as flashinfer

from .reference import (
    DEVICE,
    Batch,
    Cache,
    assert_close,
    attention,
    causal_mask,
    indptr,
    paged_wrapper,
    plan,
    poisoned,
    run,
)

pytestmark = pytest.mark.gpu

HEAD_DIM = 128
#: Query and KV lengths; the first batch has one request, the second short, long and one-token ones.
LENGTHS = [([40], [40]), ([1, 130, 17, 1, 64], [1, 333, 17, 1025, 64])]
HEADS = [(8, 2), (16, 2), (32, 8)]


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize(("page_size", "layout"), [(1, "NHD"), (5, "NHD"), (16, "NHD"), (16, "HND"), (64, "HND")])
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize(("q_lens", "kv_lens"), LENGTHS, ids=["one", "uneven"])
def test_paged_prefill(
    workspace: torch.Tensor,
    q_lens: list[int],
    kv_lens: list[int],
    heads: int,
    kv_heads: int,
    page_size: int,
    layout: str,
    causal: bool,
) -> None:
    pages = sum(-(-length // page_size) for length in kv_lens) + 7
    batch = Batch(Cache(pages, kv_heads, HEAD_DIM, page_size, layout=layout), q_lens, kv_lens, heads)
    wrapper = paged_wrapper(workspace, batch)
    plan(wrapper, batch, causal=causal)
    expected, expected_lse = batch.expected(causal=causal)
    out, lse = poisoned(*batch.q.shape), poisoned(*batch.q.shape[:2], dtype=torch.float32)
    result = wrapper.run(batch.q, batch.cache.pair, out=out, lse=lse, return_lse=True)
    assert [tensor.data_ptr() for tensor in result] == [out.data_ptr(), lse.data_ptr()]
    assert_close(out, expected, q_lens)
    torch.testing.assert_close(lse, expected_lse, atol=1e-2, rtol=0)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph wrapper"])
def test_paged_prefill_with_a_custom_mask(workspace: torch.Tensor, graph: bool) -> None:
    batch = Batch(Cache(2000, 2, HEAD_DIM, 1), [3, 1, 40, 7], [50, 900, 40, 333], 8)
    wrapper = paged_wrapper(workspace, batch, graph=graph, masked=True)
    mask = batch.mask()
    plan(wrapper, batch, custom_mask=mask)
    batch.assert_right(run(wrapper, batch), mask=mask)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize(("q_lens", "kv_lens"), LENGTHS, ids=["one", "uneven"])
def test_ragged_prefill(
    workspace: torch.Tensor, q_lens: list[int], kv_lens: list[int], heads: int, kv_heads: int, causal: bool
) -> None:
    q = torch.randn(sum(q_lens), heads, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE)
    k, v = (torch.randn(sum(kv_lens), kv_heads, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, backend="fa2")
    wrapper.plan(
        indptr(q_lens).to(DEVICE), indptr(kv_lens).to(DEVICE), heads, kv_heads, HEAD_DIM,
        causal=causal, q_data_type=torch.bfloat16,
    )  # fmt: skip
    out = poisoned(*q.shape)
    wrapper.run(q, k, v, out=out)
    parts = zip(q.split(q_lens), k.split(kv_lens), v.split(kv_lens), strict=True)
    expected = [
        attention(rows, keys, values, HEAD_DIM**-0.5, causal_mask(len(rows), len(keys)) if causal else None)[0]
        for rows, keys, values in parts
    ]
    assert_close(out, torch.cat(expected), q_lens)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph wrapper"])
@pytest.mark.parametrize(("page_size", "layout"), [(1, "NHD"), (16, "NHD"), (16, "HND")])
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("tensor_cores", [False, True], ids=["CUDA cores", "tensor cores"])
def test_decode(
    workspace: torch.Tensor, tensor_cores: bool, heads: int, kv_heads: int, page_size: int, layout: str, graph: bool
) -> None:
    kv_lens = [1, 700, 16, 2049, 33]
    pages = sum(-(-length // page_size) for length in kv_lens) + 7
    batch = Batch(Cache(pages, kv_heads, HEAD_DIM, page_size, layout=layout), [1] * 5, kv_lens, heads)
    wrapper = decode_wrapper(workspace, batch, graph=graph, tensor_cores=tensor_cores)
    wrapper.plan(*batch.layout_arguments[1:], **batch.dtypes)
    batch.assert_right(run(wrapper, batch))
    assert wrapper.resolved_backend == "fa2"


def test_decode_of_several_tokens(workspace: torch.Tensor) -> None:
    """``q_len_per_req`` is causal among a request's own tokens."""
    batch = Batch(Cache(300, 2, HEAD_DIM, 16), [4] * 3, [4, 1000, 77], 8)
    wrapper = decode_wrapper(workspace, batch, graph=True, tensor_cores=True)
    wrapper.plan(*batch.layout_arguments[1:], **batch.dtypes, q_len_per_req=4)
    batch.assert_right(run(wrapper, batch), causal=True)


def decode_wrapper(workspace: torch.Tensor, batch: Batch, *, graph: bool, tensor_cores: bool) -> Any:
    buffers: dict[str, Any] = {}
    if graph:
        buffers = {
            "use_cuda_graph": True,
            "paged_kv_indptr_buffer": torch.zeros_like(batch.kv_indptr),
            "paged_kv_indices_buffer": torch.zeros(batch.cache.pages, dtype=torch.int32, device=DEVICE),
            "paged_kv_last_page_len_buffer": torch.zeros_like(batch.last_page_len),
        }
    return flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace, batch.cache.layout, use_tensor_cores=tensor_cores, backend="fa2", **buffers
    )

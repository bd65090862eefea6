"""MLA with more query rows than the FA2 plan covers: the planned rows are right everywhere, the rest unwritten."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flashinfer_compat as flashinfer

from .reference import DEVICE, assert_close, attention, causal_mask, indptr, int32, poisoned

pytestmark = pytest.mark.gpu

HEADS, CKV, KPE, PADDING = 16, 512, 64, 5
SM_SCALE = (128 + KPE) ** -0.5


class Mla:
    """A planned MLA batch with padded queries, and its attention: the latent is both key and value."""

    def __init__(self, workspace: torch.Tensor, q_lens: list[int], page_size: int) -> None:
        self.q_lens, self.kv_lens = q_lens, [70, 513, 9]
        pages = [-(-length // page_size) for length in self.kv_lens]
        self.causal = max(q_lens) > 1
        rows = sum(q_lens) + PADDING
        self.query = tuple(self.random(rows, HEADS, dim) for dim in (CKV, KPE))
        self.kv_cache = tuple(self.random(sum(pages) + 3, page_size, dim) for dim in (CKV, KPE))
        self.pages = torch.randperm(sum(pages) + 3, device=DEVICE)[: sum(pages)].int()
        self.page_starts = indptr(pages)
        self.wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace, backend="fa2")
        metadata = flashinfer.mla.MLAPlanMetadata.csr(
            indptr(q_lens).to(DEVICE), self.page_starts.to(DEVICE), self.pages, int32(self.kv_lens).to(DEVICE)
        )
        self.wrapper.plan(
            metadata=metadata,
            num_heads=HEADS,
            head_dim_ckv=CKV,
            head_dim_kpe=KPE,
            page_size=page_size,
            causal=self.causal,
            sm_scale=SM_SCALE,
            q_data_type=torch.bfloat16,
            kv_data_type=torch.bfloat16,
            query_layout="split",
            kv_cache_layout="split",
            lse_mode="base2",
        )

    @staticmethod
    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.bfloat16, device=DEVICE)

    def assert_right(self, out: torch.Tensor, lse: torch.Tensor) -> None:
        planned = sum(self.q_lens)
        outs, sums = [], []
        queries = torch.cat(self.query, dim=-1)[:planned].split(self.q_lens)
        starts = self.page_starts.tolist()
        for request, (q, kv_len) in enumerate(zip(queries, self.kv_lens, strict=True)):
            pages = self.pages[starts[request] : starts[request + 1]].long()
            latent, rope = (part[pages].flatten(0, 1)[:kv_len].unsqueeze(1) for part in self.kv_cache)
            mask = causal_mask(len(q), kv_len) if self.causal else None
            expected, expected_lse = attention(q, torch.cat([latent, rope], dim=-1), latent, SM_SCALE, mask)
            outs.append(expected)
            sums.append(expected_lse)
        assert_close(out[:planned], torch.cat(outs), self.q_lens)
        torch.testing.assert_close(lse[:planned], torch.cat(sums), atol=1e-2, rtol=0)


# Positional arguments are deprecated in FlashInfer's MLA wrapper, separate tensors too.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("q_lens", [[1, 1, 1], [2, 5, 1]], ids=["decode", "incremental"])
class TestPaddedRows:
    @pytest.mark.parametrize("structural", [True, False], ids=["query=", "q_nope="])
    def test_into_given_outputs(
        self, workspace: torch.Tensor, q_lens: list[int], page_size: int, structural: bool
    ) -> None:
        mla = Mla(workspace, q_lens, page_size)
        rows = sum(q_lens) + PADDING
        out, lse = poisoned(rows, HEADS, CKV), poisoned(rows, HEADS, dtype=torch.float32)
        inputs: dict[str, Any] = {"query": mla.query, "kv_cache": mla.kv_cache}
        if not structural:
            names = ("q_nope", "q_pe", "ckv_cache", "kpe_cache")
            inputs = dict(zip(names, (*mla.query, *mla.kv_cache), strict=True))
        result = mla.wrapper.run(**inputs, out=out, lse=lse, return_lse=True)
        assert [tensor.data_ptr() for tensor in result] == [out.data_ptr(), lse.data_ptr()]
        assert [tensor.shape for tensor in result] == [out.shape, lse.shape]
        mla.assert_right(out, lse)
        assert out[-PADDING:].isnan().all()
        assert lse[-PADDING:].isnan().all()

    def test_into_its_own_outputs(self, workspace: torch.Tensor, q_lens: list[int], page_size: int) -> None:
        mla = Mla(workspace, q_lens, page_size)
        rows = sum(q_lens) + PADDING
        out, lse = mla.wrapper.run(query=mla.query, kv_cache=mla.kv_cache, return_lse=True)
        assert (out.shape, lse.shape) == ((rows, HEADS, CKV), (rows, HEADS))
        mla.assert_right(out, lse)

    def test_the_planned_rows_alone(self, workspace: torch.Tensor, q_lens: list[int], page_size: int) -> None:
        mla = Mla(workspace, q_lens, page_size)
        query = tuple(part[: sum(q_lens)] for part in mla.query)
        out, lse = mla.wrapper.run(query=query, kv_cache=mla.kv_cache, return_lse=True)
        assert out.shape == (sum(q_lens), HEADS, CKV)
        mla.assert_right(out, lse)

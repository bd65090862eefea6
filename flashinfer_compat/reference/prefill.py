"""`flashinfer.prefill`: attention of ragged queries over a paged or a ragged KV."""

from __future__ import annotations

from .paged_prefill import BatchPrefillWithPagedKVCacheWrapper, fast_prefill_plan
from .ragged_prefill import BatchPrefillWithRaggedKVCacheWrapper
from .single import single_prefill_with_kv_cache, single_prefill_with_kv_cache_return_lse

__all__ = [
    "BatchPrefillWithPagedKVCacheWrapper",
    "BatchPrefillWithRaggedKVCacheWrapper",
    "fast_prefill_plan",
    "single_prefill_with_kv_cache",
    "single_prefill_with_kv_cache_return_lse",
]

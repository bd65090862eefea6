"""Windows of the trtllm-gen functions: one error for what no release computes, before anything is launched."""

from __future__ import annotations

import operator
from typing import Any

from ..errors import UnsupportedCombination


def refuse_noncausal_ragged_window(is_causal: bool, window_left: int, backend: str) -> None:
    """Before 0.7.4 the window was silently dropped (fmhaKernels.cuh); 0.7.4 refuses (prefill.py)."""
    if not is_causal and window_left >= 0 and backend != "cute-dsl":
        raise UnsupportedCombination(
            f"trtllm_ragged_attention_deepseek(is_causal=False, window_left={window_left}): a non-causal window needs "
            "a right bound, which this function has not in any release. Pass window_left=-1, or backend='cute-dsl'."
        )


def refuse_noncausal_window(causal: bool, window_left: int) -> None:
    """0.7.4 takes it with window_right; older releases raise NotImplementedError, 0.7.4 ValueError without it."""
    if not causal and window_left >= 0:
        raise UnsupportedCombination(
            f"trtllm_batch_context_with_kv_cache(causal=False, window_left={window_left}) needs window_right >= 0, "
            "which FlashInfer has from 0.7.4 on. Pass window_left=-1 for dense bidirectional attention."
        )


def window_as_int(window_left: Any) -> int:
    """0.7.4 refuses integers that are not Python's (numpy's, for example); older releases take them."""
    return operator.index(window_left)


def refuse_noncausal_paged_window(self: Any, causal: bool, window_left: int) -> None:
    """Older releases raise late in plan(), after the wrapper has changed; 0.7.4 raises first (prefill.py)."""
    if self._backend == "trtllm-gen" and not causal and window_left >= 0:
        raise UnsupportedCombination(
            f"plan(causal=False, window_left={window_left}): the trtllm-gen backend has no non-causal window for paged "
            "KV. Pass window_left=-1 for dense bidirectional attention."
        )


def refuse_causal_nvfp4(causal: bool) -> None:
    """prepare_nvfp4_attention had ``causal=False`` in 0.7.1."""
    if causal:
        raise UnsupportedCombination("prepare_nvfp4_attention(causal=True): no supported FlashInfer computes it.")

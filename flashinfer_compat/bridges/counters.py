"""The trtllm-gen multi-CTA KV counters: sized by query rows, zeroed once, owned by the caller."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import UnsupportedCombination

#: The kernels count in int32 and check for 16-byte alignment; sizes are rounded up to 8 counters (launcher.cu).
BYTES_PER_COUNTER, COUNTERS_MULTIPLE = 4, 8


def multi_ctas_kv_counter_bytes(
    num_rows: int, num_qo_heads: int, device: torch.device | str | int | None = None
) -> int:
    """Bytes of a counter buffer for up to `num_rows` query rows (at least the number of requests) of `num_qo_heads`.

    FlashInfer sizes by requests, but its variable-length kernels index by query row: size by rows. `device` gives the
    multiprocessor count, below which the buffer never falls; the default is the current device.
    Source: flashinfer/utils.py, get_trtllm_gen_multi_ctas_kv_counter_bytes, the same in all supported releases.
    """
    if num_rows < 1 or num_qo_heads < 1:
        raise UnsupportedCombination(f"num_rows={num_rows} and num_qo_heads={num_qo_heads} must be at least 1.")
    counters = max(num_rows * num_qo_heads, _multiprocessors(device))
    return BYTES_PER_COUNTER * (-(-counters // COUNTERS_MULTIPLE) * COUNTERS_MULTIPLE)


def allocate_multi_ctas_kv_counters(num_rows: int, num_qo_heads: int, device: torch.device | str | int) -> torch.Tensor:
    """A zeroed counter buffer (uint8, 1-D) to pass as ``multi_ctas_kv_counter_buffer=``.

    The kernels leave it zeroed, so one buffer serves all layers and replays of one stream; concurrent streams need one
    each. Allocate it before capturing a CUDA graph.
    """
    if torch.device(device).type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise UnsupportedCombination("Allocate the counters before capturing: a graph would zero them in each replay.")
    return torch.zeros(multi_ctas_kv_counter_bytes(num_rows, num_qo_heads, device), dtype=torch.uint8, device=device)


def _multiprocessors(device: Any) -> int:
    target = torch.device("cuda" if device is None else device)
    if target.type != "cuda" or not torch.cuda.is_available():
        return 0
    count: int = torch.cuda.get_device_properties(target).multi_processor_count
    return count

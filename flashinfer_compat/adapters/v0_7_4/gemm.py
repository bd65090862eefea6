"""Matrix products."""

from __future__ import annotations

from ...bridges.names import Moved
from ..model import Lines

LINES: Lines = {
    "gemm.gemm_base._get_cache_buf": Moved(
        to="utils:_get_cache_buf",
        instead="flashinfer.utils._get_cache_buf",
        note="gone from gemm_base in 0.7.4, in utils on every release",
    ),
}

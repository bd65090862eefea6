"""One folder per FlashInfer release, in it a table for each of FlashInfer's domains: attention, sampling and so on.

Each line is a difference from the next newer release.

A line's key is a dotted public name of FlashInfer without the leading ``flashinfer.``; a method or a function may have
several lines, a rule for each parameter. The kinds of line live in ``bridges/``. This module only lists the releases:
tables are imported when the first name is used, since their bridges need torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .model import Adapter


class Release(NamedTuple):
    """A supported release, and a text that a file of its source has and no older release's has."""

    version: str
    marker_file: str
    marker_text: str

    @property
    def adapter(self) -> Adapter:
        module = import_module(f".v{self.version.replace('.', '_')}", __name__)
        adapter: Adapter = module.ADAPTER
        return adapter


#: Oldest first. 0.7.3 is not on the index; its marker is stated by upstream's pull request (21 planner arguments).
RELEASES = (
    Release("0.7.1", "mla/_core.py", "def trtllm_prefill_with_kv_cache_mla"),
    Release("0.7.2", "decode.py", "_cudnn_auto"),
    Release("0.7.2.post1", "prefill.py", "_resolve_uniform_q_len"),
    Release("0.7.3", "data/csrc/batch_prefill_jit_binding.cu", "fixed_uniform_q_len"),
    Release("0.7.4", "prefill.py", "use_token_head_sf"),
)

"""What the reference makes of each feature: the same by another route, ignored where it is a hint, or not at all."""

from __future__ import annotations

import inspect
import re
from typing import Any

from ..adapters.model import split
from ..support import MISSING, Support
from . import lookup

#: What only tells kernels how to go about it: taken, and without effect.
HINTS = frozenset({
    "block_tables", "cft_max_tokens_for_combine", "cft_max_tokens_for_dispatch", "disable_split_kv",
    "dsa_graph_safe", "enable_pdl", "fixed_split_size", "is_deterministic", "lamport_max_tokens", "max_sequence_kv",
    "max_token_per_sequence", "non_blocking", "timeout_sec", "uniform_q_len", "use_fp16_qk_reduction",
})  # fmt: skip
#: Taken at its default alone.
REFUSED = frozenset({
    "bmm1_scale", "bmm2_scale", "cft", "ckv_scale_arr", "jit_args", "jit_kwargs", "lamport", "max_item_len_ptr",
    "o_indptr", "o_scale", "output_scale", "prefix_len_ptr", "profiler_buffer", "scale_k", "scale_q", "scale_v",
    "skip_softmax", "skip_softmax_threshold_scale_factor", "token_pos_in_items_ptr", "use_fp16_softmax",
    "use_profiler", "use_sinks", "uses_spcompress", "v_indptr", "variant_owns_mask", "window_right",
})  # fmt: skip
#: It draws by PyTorch: the distribution is FlashInfer's, the tokens are others.
_OTHER_TOKENS = "sampling.top_p_sampling_from_probs(deterministic across releases)"


def outcome(feature: str, *, known: bool) -> Support | None:
    """Of ``"module.name"``, ``"module.Class.method"`` or either with ``(parameter)``; None of what is nowhere.

    `known` of a name that some release has: then it is unavailable where it is not here.
    """
    key, _, parameter = feature.rstrip(")").partition("(")
    name, method = split(key)
    found = lookup.find(name)
    held = found if not method or found is MISSING else inspect.getattr_static(found, method, MISSING)
    if held is MISSING:
        return Support.UNAVAILABLE if known or lookup.definition(key) is not None else None
    if not parameter:
        return Support.EMULATED
    taken = re.split("[= ]", parameter)[0]
    if feature == _OTHER_TOKENS or taken in REFUSED:
        return Support.UNAVAILABLE
    if taken not in _parameters(held):
        return Support.UNAVAILABLE if known else None
    return Support.IGNORED if taken in HINTS else Support.EMULATED


def _parameters(held: Any) -> frozenset[str]:
    return frozenset(inspect.signature(held).parameters) if callable(held) else frozenset()

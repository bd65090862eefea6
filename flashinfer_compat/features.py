"""What the installed release makes of each feature: `supports`, `require`, `report`, `explain`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from . import namespace
from .adapters.model import split
from .bridges.names import Added
from .bridges.rules import Rule, native_parameters
from .errors import CompatError, FeatureUnavailable
from .lines import Line, NameLine, Noted
from .support import MISSING, Support

#: Short names for what engines gate on -> the table's key, with the parameter where it is one.
FEATURES: dict[str, str] = {
    "prefill.uniform_q_len": "prefill.BatchPrefillWithPagedKVCacheWrapper.plan(uniform_q_len)",
    "prefill.ragged_uniform_q_len": "prefill.BatchPrefillWithRaggedKVCacheWrapper.plan(uniform_q_len)",
    "prefill.ragged_host_indptr": "prefill.BatchPrefillWithRaggedKVCacheWrapper.plan(qo_indptr_cpu)",
    "prefill.workspace_size_uniform_q_len": "prefill.BatchPrefillWithPagedKVCacheWrapper.workspace_size(uniform_q_len)",
    "prefill.max_total_num_rows": "prefill.BatchPrefillWithPagedKVCacheWrapper.__init__(max_total_num_rows)",
    "prefill.token_head_scales": "prefill.BatchPrefillWithPagedKVCacheWrapper.plan(use_token_head_sf)",
    "prefill.fast_prefill_plan": "prefill.fast_prefill_plan",
    "prefill.raw_fa2_plan": "prefill.raw_fa2_plan",
    "prefill.fixed_uniform_q_len": "prefill.raw_fa2_plan(fixed_uniform_q_len)",
    "prefill.prefill_chunk_align": "prefill.prefill_chunk_align",
    "prefill.right_window": "prefill.trtllm_batch_context_with_kv_cache(window_right)",
    "decode.token_head_scales": "decode.BatchDecodeWithPagedKVCacheWrapper.plan(use_token_head_sf)",
    "decode.jit_kwargs": "decode.BatchDecodeWithPagedKVCacheWrapper.__init__(jit_kwargs)",
    "decode.sparse_top_k": "decode.trtllm_batch_decode_with_kv_cache(sparse_top_k)",
    "decode.sink_wrapper": "attention.BatchDecodeWithAttentionSinkWrapper",
    "mla.multi_ctas_kv_counters": "mla.allocate_multi_ctas_kv_counters",
    "mla.private_counter_helper": "mla._core._get_trtllm_gen_multi_ctas_kv_counter_buffer",
    "mla.nvfp4_sparse_decode": "mla.nvfp4_sparse_mla_decode",
    "mla.padded_query_rows": "mla.BatchMLAPagedAttentionWrapper.run(query)",
}


def supports(feature: str) -> Support:
    """The outcome of `feature` on the installed release; an unknown name raises `CompatError`, it is not "unavailable".

    `feature` is one of `report()`'s names, or any name of FlashInfer's: ``"norm.rmsnorm"``, ``"decode.f(keyword)"``.
    """
    if namespace.selected.release is None:
        return Support.UNAVAILABLE
    key, parameter = _parsed(feature)
    lines = namespace.adapter().lines.get(key, ())
    native = _native(key)
    if parameter:
        outcomes = [outcome for line, outcome in _outcomes(key, lines) if _concerns(line, parameter)]
        if not outcomes and parameter not in _accepted(key, lines):
            raise _unknown(feature)
    else:
        outcomes = [line.support(native) for line in lines if isinstance(line, NameLine)]
        if not outcomes and native is MISSING:
            raise _unknown(feature)
    return max(outcomes, key=list(Support).index, default=Support.NATIVE)


def require(*features: str) -> None:
    """Raise `FeatureUnavailable`, naming those of `features` that cannot be had, unless all can."""
    missing = [feature for feature in features if supports(feature) is Support.UNAVAILABLE]
    if missing:
        raise FeatureUnavailable("\n".join(explain(feature) for feature in missing))


def report() -> dict[str, Any]:
    """The installed release, the adapter that serves it, and every feature's outcome; all JSON-able."""
    selected = namespace.selected
    return {
        "flashinfer": selected.installed,
        "adapter": selected.release.version if selected.release else None,
        "inferred": bool(selected.release and selected.release.adapter.inferred),
        "features": {feature: str(supports(feature)) for feature in FEATURES},
    }


def explain(name: str) -> str:
    """What becomes of `name` here, a line for each difference: outcome, how it is bridged, the upstream source."""
    selected = namespace.selected
    if selected.release is None:
        return f"{name}: {supports(name)}. {namespace.NOTHING_INSTALLED}"
    key, parameter = _parsed(name)
    told = [f"{name}: {supports(name)} on FlashInfer {selected.installed} (adapter {selected.release.version})"]
    for member, lines in namespace.adapter().lines.items():
        if member == key or (split(member)[0] == key and not parameter):
            where = split(member)[1]
            for line, outcome in _outcomes(member, lines):
                if not parameter or _concerns(line, parameter):
                    subject = where + (f"({', '.join(_subject(line))})" if _subject(line) else "")
                    told.append(f"  {subject + ': ' if subject else ''}{outcome}: {line.note}")
    return "\n".join(told)


def _parsed(feature: str) -> tuple[str, str]:
    """The table's key, and the parameter or ``""``."""
    key, _, parameter = FEATURES.get(feature, feature).rstrip(")").partition("(")
    return key, parameter


def _native(key: str) -> Any:
    """FlashInfer's object for a key, a name that the facade adds, or `MISSING`."""
    name, method = split(key)
    native = namespace.native_object(name)
    if native is MISSING and any(isinstance(line, Added) for line in namespace.adapter().lines.get(name, ())):
        native = namespace.facade_object(name)
    return getattr(native, method, MISSING) if method else native


def _accepted(key: str, lines: Iterable[Line]) -> Any:
    """The parameters that FlashInfer's object takes by itself."""
    native = _native(key)
    name, method = split(key)
    rules = [line for line in lines if isinstance(line, Rule)]
    return native_parameters(native, rules, _native(name) if method else None) if callable(native) else {}


def _outcomes(key: str, lines: tuple[Line, ...]) -> list[tuple[Line, Support]]:
    native = _native(key)
    accepted = _accepted(key, lines) if native is not MISSING else MISSING
    return [(line, line.support(accepted if isinstance(line, Rule) else native)) for line in lines]


def _subject(line: Line) -> tuple[str, ...]:
    """The parameters that a line is about."""
    if isinstance(line, Noted):
        return (line.parameter,)
    return line.subject if isinstance(line, Rule) else ()


def _concerns(line: Line, parameter: str) -> bool:
    return parameter in _subject(line)


def _unknown(feature: str) -> CompatError:
    near = difflib.get_close_matches(feature, [*FEATURES, *namespace.adapter().lines], n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else " report() lists the features."
    return CompatError(f"{feature!r} is no feature that flashinfer_compat knows, and no name of FlashInfer's.{hint}")

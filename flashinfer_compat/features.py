"""What the installed release makes of each feature: `supports`, `require`, `report`, `explain`."""

from __future__ import annotations

import difflib
from typing import Any

from . import namespace
from .adapters.model import split
from .bridges.rules import Rule, native_parameters
from .errors import CompatError, FeatureUnavailable
from .lines import MISSING, Line, NameLine, Noted, Support

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
    return _outcome(feature)[0]


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
    """What becomes of `name` here, line by line: outcome, how, and the upstream source."""
    outcome, lines = _outcome(name)
    selected = namespace.selected
    if selected.release is None:
        return f"{name}: {outcome}. {namespace.NOTHING_INSTALLED}"
    heading = f"{name}: {outcome} on FlashInfer {selected.installed} (adapter {selected.release.version})"
    return "\n".join([heading, *(f"  {line_outcome}: {line.note}" for line, line_outcome in lines)])


def _outcome(feature: str) -> tuple[Support, list[tuple[Line, Support]]]:
    """The outcome, and the lines behind it with each one's own."""
    key, _, parameter = FEATURES.get(feature, feature).rstrip(")").partition("(")
    if namespace.selected.release is None:
        if feature not in FEATURES:
            raise CompatError(namespace.NOTHING_INSTALLED)
        return Support.UNAVAILABLE, []
    adapter = namespace.adapter()
    name, method = split(key)
    native = namespace.native_object(name)
    lines = adapter.lines.get(key, ())
    if parameter:
        owner = native if isinstance(native, type) else None
        if native is MISSING and name in adapter.names and adapter.available(name, native):
            native = namespace.facade_object(name)
        function = getattr(native, method, MISSING) if method else native
        return _parameter_outcome(feature, function, owner, parameter, lines)
    if method and name not in adapter.lines and native is not MISSING and not hasattr(native, method):
        raise _unknown(feature)
    considered: list[tuple[Line, Support]] = [
        (line, line.support(native)) for line in lines if isinstance(line, NameLine)
    ]
    if considered:
        return _worst(considered), considered
    if native is MISSING:
        raise _unknown(feature)
    return Support.NATIVE, _described(native, method, lines)


def _parameter_outcome(
    feature: str, function: Any, owner: type | None, parameter: str, lines: tuple[Line, ...]
) -> tuple[Support, list[tuple[Line, Support]]]:
    rules = [line for line in lines if isinstance(line, Rule)]
    accepted = {} if function is MISSING else native_parameters(function, rules, owner)
    considered: list[tuple[Line, Support]] = [
        (line, line.support(accepted)) for line in rules if line.concerns(parameter)
    ]
    considered += [(line, line.outcome) for line in lines if isinstance(line, Noted) and line.parameter == parameter]
    if considered:
        return _worst(considered), considered
    if parameter in accepted:
        return Support.NATIVE, []
    raise _unknown(feature)


def _described(native: Any, method: str, lines: tuple[Line, ...]) -> list[tuple[Line, Support]]:
    """All lines of a function or method, for `explain`."""
    rules = [line for line in lines if isinstance(line, Rule)]
    function = getattr(native, method) if method else native
    accepted = native_parameters(function, rules, native if method else None) if callable(function) else {}
    return [(line, line.support(accepted) if isinstance(line, Rule) else line.support(native)) for line in lines]


def _worst(considered: list[tuple[Line, Support]]) -> Support:
    order = list(Support)
    return max((outcome for _, outcome in considered), key=order.index)


def _unknown(feature: str) -> CompatError:
    near = difflib.get_close_matches(feature, [*FEATURES, *namespace.adapter().lines], n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else " report() lists the features."
    return CompatError(f"{feature!r} is no feature that flashinfer_compat knows, and no name of FlashInfer's.{hint}")

"""What the installed release makes of each feature: `supports`, `require`, `report`, `explain`."""

from __future__ import annotations

import difflib
import re
import warnings
from functools import cached_property
from typing import Any

from . import namespace
from .adapters import Release
from .adapters.model import split
from .bridges.classes import Extended, Follows
from .bridges.names import Added, Gone
from .bridges.rules import Rule, native_parameters
from .errors import CompatError, FeatureUnavailable
from .gates import GATES
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
    "norm.gated_residual_rmsnorm": "norm.gated_residual_rmsnorm",
    "norm.gated_residual_next_rmsnorm": "norm.gated_residual_next_rmsnorm",
    "norm.rmsnorm_sigmoid_gate": "norm.rmsnorm_sigmoid_gate",
    "quantization.auto_backend": "quantization.fp4_quantize(backend)",
    "quantization.batch_invariant": "quantization.fp4_quantize(batch_invariant)",
    "gemm.batch_invariant": "gemm.mm_fp4(batch_invariant)",
    "gemm.cake_fp4": "gemm.mm_fp4(backend='cake')",
    "fused_moe.batch_invariant_finalize": "fused_moe.batch_invariant_finalize",
    "fused_moe.resolved_fused_finalize": "fused_moe.cutlass_fused_moe(use_fused_finalize)",
    "fused_moe.gemm1_clamp_limit": "fused_moe.trtllm_fp8_per_tensor_scale_moe(gemm1_clamp_limit)",
    "fused_moe.workspace_buffer": "fused_moe.trtllm_bf16_moe(workspace_buffer)",
    "fused_moe.routing_metadata": "fused_moe.trtllm_fp4_block_scale_routed_moe(routing_metadata)",
    "comm.allreduce_mnnvl_cutedsl": "comm.allreduce.create_allreduce_fusion_workspace(backend='mnnvl-cutedsl')",
    "comm.moe_all_to_all": "comm.MoeAlltoAll",
    "comm.mnnvl_moe": "comm.trtllm_alltoall.MnnvlMoe",
    "moe_ep.communication": "moe_ep.create_communication",
    "moe_ep.finalize_mode": "moe_ep.Nvfp4CutedslMegaMoeConfig.__init__(finalize_mode)",
    "moe_ep.routing_weights": "moe_ep.Nvfp4CutedslMegaMoeConfig.__init__(apply_routing_weights_before_fc2)",
    "gdn.replay_state_cache": "gdn_decode.gated_delta_rule_mtp(cache_replayssm)",
    "sampling.generator": "sampling.sampling_from_probs(generator)",
    "sampling.row_seeds": "sampling.sampling_from_probs(seed per row)",
    "sampling.indexed_top_k": "sampling.top_k_sampling_from_probs(top_k with indices)",
    "sampling.indexed_min_p": "sampling.min_p_sampling_from_probs(min_p with indices)",
    "sampling.int64_indices": "sampling.top_k_sampling_from_probs(indices of int64)",
    "sampling.top_k_max": "sampling.top_k_top_p_sampling_from_logits(top_k_max)",
    "sampling.same_tokens": "sampling.top_p_sampling_from_probs(deterministic across releases)",
    "sampling.softmax_temperatures": "sampling.softmax(temperature per row)",
    "sampling.concurrent_streams": "sampling.top_k_mask_logits(logits on several streams)",
    "sampling.exact_accepted_count": "sampling.chain_speculative_sampling(maybe_output_accepted_token_num)",
    "topk.concurrent_streams": "topk.top_k(input on several streams)",
}


def supports(feature: str) -> Support:
    """The outcome of `feature` on the installed release; an unknown name raises `CompatError`, it is not "unavailable".

    `feature` is one of `report()`'s names, or any name of FlashInfer's: ``"norm.rmsnorm"``, ``"decode.f(keyword)"``.
    """
    if namespace.selected.reference:
        from .reference import support

        found = support.outcome(FEATURES.get(feature, feature), known=feature in FEATURES or feature in GATES)
        if found is None:
            raise _unknown(feature)
        return found
    if namespace.choose_again().release is None:
        return Support.UNAVAILABLE
    asked = _Asked(feature)
    if asked.holder_is_missing or asked.absence:
        return Support.UNAVAILABLE
    outcomes = [outcome for _, outcome in asked.concerning()]
    if outcomes or asked.is_there:
        found = max(outcomes, key=list(Support).index, default=Support.NATIVE)
        return Support.EMULATED if found is Support.NATIVE and asked.is_supplied else found
    if asked.releases or feature in GATES:
        return Support.UNAVAILABLE
    raise _unknown(feature)


def require(*features: str) -> None:
    """Raise `FeatureUnavailable`, naming those of `features` that cannot be had, unless all can."""
    missing = [feature for feature in features if supports(feature) is Support.UNAVAILABLE]
    if missing:
        raise FeatureUnavailable("\n".join(explain(feature) for feature in missing))


def report() -> dict[str, Any]:
    """The installed release, the adapter that serves it, and every feature's outcome; all JSON-able.

    ``gates`` are the outcomes of what published engines look for before they use it, by FlashInfer's names.
    ``backend`` is "flashinfer", "reference" where the contract runs in plain PyTorch, or None.
    """
    selected = namespace.choose_again()
    return {
        "backend": selected.backend,
        "flashinfer": selected.installed,
        "adapter": selected.release.version if selected.release else None,
        "inferred": bool(selected.release and selected.release.adapter.inferred),
        "features": {feature: str(supports(feature)) for feature in FEATURES},
        "gates": {gate: str(supports(gate)) for gate in GATES},
    }


def explain(name: str) -> str:
    """What becomes of `name` here, a line for each difference: outcome, how it is bridged, the upstream source."""
    selected = namespace.choose_again()
    if selected.reference:
        return f"{name}: {supports(name)} on the reference in plain PyTorch, which takes the place of FlashInfer"
    if selected.release is None:
        return f"{name}: {supports(name)}. {namespace.NOTHING_INSTALLED}"
    asked = _Asked(name)
    told = [f"{name}: {supports(name)} on FlashInfer {selected.installed} (adapter {selected.release.version})"]
    if asked.absence:
        return f"{told[0]}\n  {Support.UNAVAILABLE}: {asked.absence}"
    keys = [asked.key]
    if not asked.method and not asked.parameter:
        keys += [key for key in namespace.adapter().lines if split(key)[0] == asked.name and key != asked.key]
    for key in keys:
        member = _Asked(f"{key}({asked.parameter})" if asked.parameter else key)
        for line, outcome in member.outcomes():
            subject = _subject(line)
            if not asked.parameter or asked.parameter in subject:
                what = member.method + (f"({', '.join(subject)})" if subject else "")
                told.append(f"  {what + ': ' if what else ''}{outcome}: {line.note}{_availability(line, outcome)}")
    if len(told) == 1 and supports(name) is Support.UNAVAILABLE:
        told.append(f"  {Support.UNAVAILABLE}: {asked.why_not_here}")
    return "\n".join(told)


class _Asked:
    """A feature's name, resolved: the table's key, the parameter, and FlashInfer's object.

    FlashInfer exports one object under several names, and ``begin_forward`` is ``plan``: the table has one of them.
    """

    def __init__(self, feature: str) -> None:
        dotted = FEATURES.get(feature, feature).removeprefix(f"{namespace.NATIVE_ROOT}.")
        key, _, parameter = dotted.rstrip(")").partition("(")
        self.parameter = parameter.replace('"', "'")
        self.name, self.method = split(key)
        adapter = namespace.adapter()
        self.holder, self.needs = _native(self.name)
        if self.name not in adapter.names:
            if self.holder is MISSING:
                self.name = namespace.missing_name(self.name.rpartition(".")[2]) or self.name
            else:
                self.name = namespace.bound_name(self.holder) or self.name
        by_method = adapter.names.get(self.name, {})
        self.holder_lines: tuple[Line, ...] = by_method.get("", ())
        added = self.holder is MISSING and any(isinstance(line, Added) for line in self.holder_lines)
        #: Whether the facade has something in the place of what this release has not.
        self.is_supplied = self.holder is MISSING and any(
            isinstance(line, NameLine) and line.supplies for line in self.holder_lines
        )
        if self.is_supplied:
            # What extends FlashInfer's own class has nothing to say of another.
            self.holder_lines = tuple(line for line in self.holder_lines if not isinstance(line, Extended))
        if added or self.is_supplied:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # asking is not using
                self.holder = namespace.facade_object(self.name)
        if self.method and self.method not in by_method:
            native = getattr(self.holder, self.method, None)
            same = [other for other in by_method if other and getattr(self.holder, other, None) is native is not None]
            self.method = same[0] if same else self.method
        self.key = f"{self.name}.{self.method}" if self.method else self.name
        self.lines: tuple[Line, ...] = by_method.get(self.method, ()) if self.method else self.holder_lines
        self.native = getattr(self.holder, self.method, MISSING) if self.method else self.holder

    @property
    def holder_is_missing(self) -> bool:
        """Whether this release has not even the function or class."""
        lacking = any(line.support(MISSING) is Support.UNAVAILABLE for line in self.holder_lines)
        return self.holder is MISSING and lacking

    @property
    def absence(self) -> str | None:
        """What is missing where the function or class is not here and no line says so: a package, or a release."""
        if self.needs:
            return f"FlashInfer's {self.name} {self.needs}"
        supplied = any(isinstance(line, NameLine) for line in self.holder_lines)
        return namespace.absence(self.name) if self.holder is MISSING and not supplied else None

    @property
    def is_there(self) -> bool:
        """Whether FlashInfer, or what is supplied in its place, has it by itself."""
        if self.parameter:
            # A line may be about a value ("backend='x'") or a use ("seed per row") of the parameter.
            return self.native is not MISSING and _argument(self.parameter) in self._accepted()
        return self.native is not MISSING

    @cached_property
    def releases(self) -> list[Release]:
        """Those of the supported releases that have it, as their surfaces are recorded."""
        # Only what is asked for in vain needs the recorded surfaces.
        from .outcomes import releases_with

        return releases_with(self.name, self.method, _argument(self.parameter))

    @property
    def why_not_here(self) -> str:
        """Why what nothing else is said of is missing."""
        release = namespace.selected.release
        if not self.releases or release in self.releases:
            return (
                "FlashInfer does not have it here. Some names it leaves out without an error where a package that they "
                "need, as nvidia-cutlass-dsl or triton, is not installed."
            )
        had = [f"{one.version}{' (inferred)' if one.adapter.inferred else ''}" for one in self.releases]
        return f"Of the releases, {', '.join(had)} {'have' if len(had) > 1 else 'has'} it."

    def outcomes(self) -> list[tuple[Line, Support]]:
        """All lines of the key, each with its outcome here."""
        native = MISSING if self.is_supplied else self.native
        accepted = self._accepted() if native is not MISSING else MISSING
        lines = [line for line in self.lines if not (isinstance(line, Follows) and native is MISSING)]
        return [(line, line.support(accepted if isinstance(line, Rule) else native)) for line in lines]

    def concerning(self) -> list[tuple[Line, Support]]:
        """The lines that decide what was asked."""
        if self.parameter:
            return [(line, outcome) for line, outcome in self.outcomes() if self.parameter in _subject(line)]
        if self.method and self.native is MISSING and self.holder is not MISSING:
            added = hasattr(namespace.facade_object(self.name), self.method)
            return [(line, Support.EMULATED) for line in self.holder_lines if added]
        return [(line, outcome) for line, outcome in self.outcomes() if isinstance(line, NameLine)]

    def _accepted(self) -> Any:
        """The parameters that FlashInfer's object takes by itself."""
        rules = [line for line in self.lines if isinstance(line, Rule)]
        owner = self.holder if self.method else None
        if not callable(self.native) or not (rules or self.parameter):
            return {}
        try:
            return native_parameters(self.native, rules, owner)
        except ValueError:  # an exception class: its constructor is the interpreter's
            return {}


def _native(name: str) -> tuple[Any, str]:
    """FlashInfer's object or module, or `MISSING` and, where it cannot be asked for it, why."""
    try:
        found = namespace.native_object(name)
    except ModuleNotFoundError as error:
        return MISSING, f"needs the package {error.name}, which is not installed."
    except ImportError as error:
        return MISSING, f"cannot be imported here: {error}"
    if found is MISSING and name and not namespace.absence(name):
        found = namespace.native_module(name) or MISSING
    return found, ""


def _argument(parameter: str) -> str:
    return re.split("[= ]", parameter)[0]


def _subject(line: Line) -> tuple[str, ...]:
    """The parameters that a line is about."""
    if isinstance(line, Noted):
        return (line.parameter,)
    return line.subject if isinstance(line, Rule) else ()


def _availability(line: Line, outcome: Support) -> str:
    """Which releases have what this one has not, and what to do."""
    if outcome is not Support.UNAVAILABLE:
        return ""
    if isinstance(line, Gone):
        return f". FlashInfer {line.had} have it. {line.instead}"
    since = getattr(line, "since", None)
    if since is None:
        return ""
    return f". FlashInfer {since} and later have it. {getattr(line, 'instead', '')}"


def _unknown(feature: str) -> CompatError:
    lines = () if namespace.selected.reference else namespace.adapter().lines
    near = difflib.get_close_matches(feature, [*FEATURES, *lines], n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else " report() lists the features."
    return CompatError(f"{feature!r} is no feature that flashinfer_compat knows, and no name of FlashInfer's.{hint}")

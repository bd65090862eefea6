"""What each release makes of each feature, written out, and how it is said: supports, require, report, explain."""

from __future__ import annotations

import importlib.util
import json
import warnings
from typing import Any

import pytest

import flashinfer_compat as facade
from flashinfer_compat import CompatError, FeatureUnavailable, Support
from flashinfer_compat.features import FEATURES
from flashinfer_compat.gates import GATES

#: Read from the published wheels. 0.7.3 is on no index: its column is what its adapter concludes on the code of 0.7.4,
#: and the two rows that upstream states of 0.7.3 itself: 21 planner arguments, the private counter helper gone.
OUTCOMES = """
                                      0.7.1        0.7.2        0.7.2.post1  0.7.3        0.7.4
prefill.uniform_q_len                 emulated     emulated     native       native       native
prefill.ragged_uniform_q_len          emulated     emulated     native       native       native
prefill.ragged_host_indptr            emulated     emulated     emulated     native       native
prefill.workspace_size_uniform_q_len  emulated     emulated     native       native       native
prefill.max_total_num_rows            emulated     emulated     emulated     native       native
prefill.token_head_scales             unavailable  unavailable  unavailable  native       native
prefill.fast_prefill_plan             emulated     emulated     emulated     emulated     emulated
prefill.raw_fa2_plan                  emulated     emulated     emulated     emulated     emulated
prefill.fixed_uniform_q_len           ignored      ignored      ignored      native       native
prefill.prefill_chunk_align           emulated     emulated     emulated     emulated     emulated
prefill.right_window                  unavailable  unavailable  unavailable  native       native
decode.token_head_scales              unavailable  unavailable  unavailable  native       native
decode.jit_kwargs                     unavailable  unavailable  unavailable  native       native
decode.sparse_top_k                   unavailable  unavailable  unavailable  native       native
decode.sink_wrapper                   unavailable  unavailable  unavailable  native       native
mla.multi_ctas_kv_counters            emulated     emulated     emulated     emulated     emulated
mla.private_counter_helper            native       native       native       emulated     emulated
mla.nvfp4_sparse_decode               unavailable  native       native       native       native
mla.padded_query_rows                 native       native       native       emulated     emulated
norm.gated_residual_rmsnorm           unavailable  unavailable  native       native       native
norm.gated_residual_next_rmsnorm      unavailable  unavailable  native       native       native
norm.rmsnorm_sigmoid_gate             unavailable  unavailable  native       native       native
quantization.auto_backend             emulated     emulated     emulated     native       native
quantization.batch_invariant          unavailable  unavailable  unavailable  native       native
gemm.batch_invariant                  unavailable  unavailable  unavailable  native       native
gemm.cake_fp4                         unavailable  native       native       native       native
fused_moe.batch_invariant_finalize    native       native       emulated     emulated     emulated
fused_moe.resolved_fused_finalize     emulated     emulated     emulated     native       native
fused_moe.gemm1_clamp_limit           unavailable  unavailable  native       native       native
fused_moe.workspace_buffer            ignored      ignored      ignored      native       native
fused_moe.routing_metadata            unavailable  unavailable  unavailable  native       native
comm.allreduce_mnnvl_cutedsl          unavailable  unavailable  native       native       native
comm.moe_all_to_all                   native       native       native       emulated     emulated
comm.mnnvl_moe                        native       native       native       emulated     emulated
moe_ep.communication                  emulated     native       native       native       native
moe_ep.finalize_mode                  unavailable  unavailable  unavailable  native       native
moe_ep.routing_weights                emulated     emulated     emulated     native       native
gdn.replay_state_cache                unavailable  native       native       native       native
sampling.generator                    emulated     emulated     emulated     emulated     emulated
sampling.row_seeds                    unavailable  native       native       native       native
sampling.indexed_top_k                emulated     native       native       native       native
sampling.indexed_min_p                emulated     native       native       native       native
sampling.int64_indices                emulated     emulated     emulated     emulated     native
sampling.top_k_max                    emulated     emulated     emulated     native       native
sampling.same_tokens                  unavailable  unavailable  unavailable  unavailable  native
sampling.softmax_temperatures         emulated     native       native       native       native
sampling.concurrent_streams           emulated     emulated     emulated     emulated     native
sampling.exact_accepted_count         unavailable  unavailable  unavailable  unavailable  native
topk.concurrent_streams               emulated     emulated     emulated     emulated     emulated
"""


def table(written: str) -> dict[str, dict[str, str]]:
    releases, *rows = (row.split() for row in written.strip().splitlines())
    return {feature: dict(zip(releases, outcomes, strict=True)) for feature, *outcomes in rows}


EXPECTED = table(OUTCOMES)


#: What published engines gate on and FlashInfer's own objects are not: on 0.7.1, 0.7.2, 0.7.2.post1, 0.7.3, 0.7.4.
GATED = """
                                                            0.7.1        0.7.2        0.7.2.post1  0.7.3        0.7.4
comm.moe_a2a_get_workspace_size_per_rank                    native       native       native       emulated     emulated
comm.tp_moe_finalize_rmsnorm.init_tp_moe_finalize_rmsnorm   unavailable  unavailable  native       native       native
comm.trtllm_alltoall.MoEAlltoallInfo                        native       native       native       emulated     emulated
moe_ep.MoEEpCommParams                                      emulated     native       native       native       native
moe_ep.MoEEpCommParams.dispatch_format                      emulated     native       native       native       native
moe_ep.NVLinkOneSidedAlltoAll                               emulated     native       native       native       native
moe_ep.NVLinkOneSidedAlltoAll.checkpoint_prepare            emulated     emulated     emulated     native       native
moe_ep.NVLinkOneSidedAlltoAll.checkpoint_restore            emulated     emulated     emulated     native       native
moe_ep.NVLinkOneSidedConfig                                 emulated     native       native       native       native
norm.kernels.gated_residual_next_rmsnorm.run                unavailable  unavailable  native       native       native
norm.kernels.gated_residual_next_rmsnorm.run(router_input)  unavailable  unavailable  native       native       native
norm.supports_gated_residual_next_rmsnorm                   emulated     emulated     native       native       native
norm.supports_gated_residual_next_rmsnorm(post_weight)      emulated     emulated     native       native       native
norm.supports_gated_residual_rmsnorm                        emulated     emulated     native       native       native
norm.supports_rmsnorm_sigmoid_gate                          emulated     emulated     native       native       native
prims_ts.gemm.prepare_fp4_linear_swiglu(tmem_overlap)       unavailable  native       native       native       native
prims_ts.gemm.prepare_fp4_qkv_qknorm_rope(tmem_overlap)     unavailable  native       native       native       native
"""
#: Left out by FlashInfer, on every release, where Triton is not installed, as with a CPU build of PyTorch.
NEED_TRITON = (
    "CuteDslMoEWrapper",
    "cute_dsl.sparse.bsa_utils.sage_quant_sm120.quantize_sage_qkv_sm120",
    "cute_dsl_fused_moe_nvfp4",
    "fused_moe.b12x_fused_moe",
)


def test_the_table_has_every_feature() -> None:
    assert list(EXPECTED) == list(FEATURES)


@pytest.mark.parametrize("feature", EXPECTED)
def test_outcome(feature: str, release: str) -> None:
    assert facade.supports(feature) is Support(EXPECTED[feature][release])
    assert facade.supports(FEATURES[feature]) is facade.supports(feature)


def test_report(release: str) -> None:
    report = facade.report()
    assert report == json.loads(json.dumps(report)), "JSON carries it unchanged"
    assert report == {
        "backend": "flashinfer",
        "flashinfer": facade.flashinfer_version,
        "adapter": release,
        "inferred": release == "0.7.3",
        "features": {feature: outcomes[release] for feature, outcomes in EXPECTED.items()},
        "gates": gated(release),
    }


def gated(release: str) -> dict[str, str]:
    with_triton = "native" if importlib.util.find_spec("triton") else "unavailable"
    differing = {gate: outcomes[release] for gate, outcomes in table(GATED).items()}
    return {gate: with_triton if gate in NEED_TRITON else differing.get(gate, "native") for gate in GATES}


def test_what_is_supplied_is_there_with_its_methods(release: str) -> None:
    """Lines that extend FlashInfer's own class count for nothing where the facade has another in its place."""
    newest = release in ("0.7.3", "0.7.4")
    for name, supplied in {
        "moe_ep.NVLinkOneSidedAlltoAll": release == "0.7.1",
        "moe_ep.NVLinkOneSidedAlltoAll.dispatch": release == "0.7.1",
        "moe_ep.NVLinkOneSidedConfig.__init__": release == "0.7.1",
        "comm.trtllm_moe_alltoall.MoeAlltoAll": newest,
        "comm.trtllm_moe_alltoall.MoeAlltoAll.dispatch": newest,
    }.items():
        assert facade.supports(name) is (Support.EMULATED if supplied else Support.NATIVE), name
    if release == "0.7.1":
        assert facade.supports("moe_ep.NVLinkOneSidedConfig.__init__(cft)") is Support.UNAVAILABLE


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("comm", "native"),  # a module, imported or not
        ("jit.cake_blackwell_softmax", "native"),
        ("moe_ep.MoEEpConfigError", "native"),  # of a constructor that cannot be inspected
        ("flashinfer.norm.rmsnorm", "native"),
        ("mm_mxfp8(skip_check)", "native"),  # taken by a decorator, behind the signature
        ("norm.supports_gated_residual_next_rmsnorm(branch)", "as supports"),
        ('gemm.mm_fp4(backend="cake")', "as cake"),
        ("fused_moe.B12xMoEWrapper", "as triton"),
        ("B12xMoEWrapper.run", "as triton"),
        ("cute_dsl.sparse.bsa_attn_sm100_blk128.bsa_attn_sm100_blk128_fwd", "unavailable"),  # quack-kernels
    ],
)
def test_names_that_are_not_plain_functions(name: str, outcome: str, release: str) -> None:
    outcome = {
        "as supports": str(facade.supports("norm.supports_gated_residual_next_rmsnorm")),
        "as cake": EXPECTED["gemm.cake_fp4"][release],
        "as triton": "native" if importlib.util.find_spec("triton") else "unavailable",
    }.get(outcome, outcome)
    assert str(facade.supports(name)) == outcome
    assert outcome != "unavailable" or len(facade.explain(name).splitlines()) > 1


def test_a_parameter_that_only_older_releases_have_is_not_taken_for_a_mistake(release: str) -> None:
    """By the recorded surfaces: no line of 0.7.4's table is about it."""
    name = "moe_ep.Nvfp4CutedslMegaMoeConfig.__init__(apply_topk_in_fc1)"
    if facade.report()["flashinfer"] == "0.7.4":
        assert facade.supports(name) is Support.UNAVAILABLE
        assert facade.explain(name).endswith(
            " unavailable: Of the releases, 0.7.1, 0.7.2, 0.7.2.post1, 0.7.3 (inferred) have it."
        )
    elif release != "0.7.3":
        assert facade.supports(name) is Support.EMULATED


def test_why_a_gate_is_off(release: str) -> None:
    off = {gate for gate, outcome in gated(release).items() if outcome == "unavailable"}
    for gate in off:
        headline, *reasons = facade.explain(gate).splitlines()
        assert headline.startswith(f"{gate}: unavailable on FlashInfer ")
        assert reasons, gate


def test_report_and_explain_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        facade.report()
        for feature in FEATURES:
            facade.explain(feature)


@pytest.mark.parametrize(
    "name",
    [
        "norm.rmsnorm",
        "rmsnorm",
        "cascade.merge_state",
        "comm.Mapping",
        "comm.mapping.Mapping.pp_rank",
        "xqa",
        "prefill.BatchPrefillWithPagedKVCacheWrapper.run",
        "BatchPrefillWithPagedKVCacheWrapper.run",
        "norm.rmsnorm(enable_pdl)",
        "prefill.BatchPrefillWithPagedKVCacheWrapper.plan(causal)",
        "decode.BatchDecodeWithPagedKVCacheWrapper.plan(q_len_per_req)",
        "cascade.MultiLevelCascadeAttentionWrapper.plan(causal)",
        "mla.BatchMLAPagedAttentionWrapper.__init__(backend)",
    ],
)
def test_what_every_release_has_alike(name: str) -> None:
    if name == "prefill.BatchPrefillWithPagedKVCacheWrapper.plan(causal)":
        # Older releases refuse a window that is not causal only after the wrapper has changed.
        native = facade.supports("prefill.token_head_scales") is Support.NATIVE
        assert facade.supports(name) is (Support.NATIVE if native else Support.EMULATED)
    else:
        assert facade.supports(name) is Support.NATIVE


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("prefill.BatchPrefillWithPagedKVCacheWrapper.plan(uniform_q_len)", "prefill.uniform_q_len"),
        # FlashInfer's other names of the same object.
        ("BatchPrefillWithPagedKVCacheWrapper.plan(uniform_q_len)", "prefill.uniform_q_len"),
        ("prefill.BatchPrefillWithPagedKVCacheWrapper.begin_forward(uniform_q_len)", "prefill.uniform_q_len"),
        ("BatchPrefillWithRaggedKVCacheWrapper.begin_forward(use_token_head_sf)", "prefill.token_head_scales"),
        ("decode.BatchDecodeWithPagedKVCacheWrapper.begin_forward(use_token_head_sf)", "decode.token_head_scales"),
        # What a missing class would have.
        ("attention.BatchDecodeWithAttentionSinkWrapper.plan", "decode.sink_wrapper"),
        ("attention.BatchDecodeWithAttentionSinkWrapper.__init__(head_dim_qk)", "decode.sink_wrapper"),
        ("BatchDecodeWithAttentionSinkWrapper", "decode.sink_wrapper"),
        ("mla.nvfp4_sparse_mla_decode(query)", "mla.nvfp4_sparse_decode"),
        # Values that a later release added.
        ("mla.BatchMLAPagedAttentionWrapper.__init__(backend='autotune')", "decode.jit_kwargs"),
        ("mla.trtllm_batch_decode_sparse_mla_dsv4(kv_cache_format='fp8_dsv41_inline')", "decode.jit_kwargs"),
    ],
)
def test_names_beside_those_of_the_features(name: str, feature: str, release: str) -> None:
    assert facade.supports(name) is Support(EXPECTED[feature][release])


def test_a_method_that_the_facade_adds(release: str) -> None:
    outcome = Support.EMULATED if release == "0.7.1" else Support.NATIVE
    assert facade.supports("decode.BatchDecodeWithPagedKVCacheWrapper.resolved_backend") is outcome


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("prefill.uniform_q_length", "prefill.uniform_q_len"),
        ("uniform_q_len", "prefill.uniform_q_len"),
        ("prefill.raw_fa2_plans", "prefill.raw_fa2_plan"),
        ("decode.sparse_topk", "decode.sparse_top_k"),
        ("norm.no_such_function", "report() lists the features"),
        ("no_such_module.f", "report() lists the features"),
        ("prefill.BatchPrefillWithPagedKVCacheWrapper.plans", "prefill.BatchPrefillWithPagedKVCacheWrapper.plan"),
        ("prefill.BatchPrefillWithPagedKVCacheWrapper.no_such_method", "BatchPrefillWithPagedKVCacheWrapper"),
        ("decode.BatchDecodeWithPagedKVCacheWrapper.no_such_method(x)", "BatchDecodeWithPagedKVCacheWrapper"),
        (
            "prefill.BatchPrefillWithPagedKVCacheWrapper.plan(no_such_keyword)",
            "BatchPrefillWithPagedKVCacheWrapper.plan",
        ),
        ("norm.rmsnorm(no_such_keyword)", "report() lists the features"),
        ("", "report() lists the features"),
    ],
)
@pytest.mark.parametrize("ask", [facade.supports, facade.require, facade.explain])
def test_an_unknown_name_is_an_error_and_not_unavailable(ask: Any, name: str, near: str) -> None:
    with pytest.raises(CompatError) as caught:
        ask(name)
    assert type(caught.value) is CompatError
    assert f"{name!r} is no feature that flashinfer_compat knows" in str(caught.value)
    assert near in str(caught.value)


UNAVAILABLE = {feature for feature, outcomes in EXPECTED.items() if "unavailable" in outcomes.values()}


def test_require(release: str) -> None:
    missing = {feature for feature in EXPECTED if EXPECTED[feature][release] == "unavailable"}
    facade.require()
    facade.require(*(set(EXPECTED) - missing))
    if not missing:
        facade.require(*EXPECTED)
        return
    with pytest.raises(FeatureUnavailable) as caught:
        facade.require(*EXPECTED)
    message = str(caught.value)
    told = {line.partition(":")[0] for line in message.splitlines() if not line.startswith(" ")}
    assert told == missing, "all that are missing, and no other"


@pytest.mark.parametrize("feature", sorted(UNAVAILABLE))
def test_what_is_missing_is_told_in_full(feature: str, release: str) -> None:
    if EXPECTED[feature][release] != "unavailable":
        facade.require(feature)
        return
    with pytest.raises(FeatureUnavailable) as caught:
        facade.require(feature)
    having = [name for name, outcome in EXPECTED[feature].items() if outcome != "unavailable" and name != "0.7.3"]
    message = str(caught.value)
    assert f"{feature}: unavailable on FlashInfer {facade.flashinfer_version}" in message
    if having[-1] == "0.7.4":
        assert f"FlashInfer {having[0]} and later have it" in message
    else:
        assert f"FlashInfer {having[0]} to {having[-1]} have it" in message
    assert message.rstrip().endswith("."), "and then what to do instead"


@pytest.mark.parametrize("feature", EXPECTED)
def test_explain(feature: str, release: str) -> None:
    heading, *lines = facade.explain(feature).splitlines()
    outcome = EXPECTED[feature][release]
    assert heading == f"{feature}: {outcome} on FlashInfer {facade.flashinfer_version} (adapter {release})"
    assert (outcome == "native") or any(f"{outcome}: " in line for line in lines), "a line that says how"


@pytest.mark.parametrize(
    ("feature", "source"),
    [
        ("prefill.uniform_q_len", "#6144"),
        ("prefill.workspace_size_uniform_q_len", "argument 17"),
        ("prefill.prefill_chunk_align", "utils.cuh, FA2DetermineCtaTileQ"),
        ("mla.private_counter_helper", "gone from mla._core in 0.7.3, still in utils"),
        ("mla.padded_query_rows", "_fa_common.py"),
        ("prefill.BatchPrefillWithPagedKVCacheWrapper.plan(qo_indptr)", "#5260"),
    ],
)
def test_explain_names_the_upstream_source(feature: str, source: str) -> None:
    outcome = facade.supports(feature)
    assert outcome is Support.NATIVE or source in facade.explain(feature)


def test_explain_of_a_class_tells_of_its_methods(release: str) -> None:
    explanation = facade.explain("prefill.BatchPrefillWithPagedKVCacheWrapper")
    assert "a plan that a captured CUDA graph could not replay is refused" in explanation
    assert ("plan(uniform_q_len): emulated: " in explanation) is (release in ("0.7.1", "0.7.2"))

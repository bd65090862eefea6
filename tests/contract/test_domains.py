"""What single lines of the domains' tables do to the values that reach FlashInfer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flashinfer_compat as flashinfer
from flashinfer_compat import InvalidArgument, Support, UnsupportedArgument, moe_ep
from flashinfer_compat.bridges import expert_parallel, quantization, sinks

from .test_conformance import Placeholder, Recorded

RELEASES = ("0.7.1", "0.7.2", "0.7.2.post1", "0.7.3", "0.7.4")
#: 0.7.3 is tested on the code of 0.7.4.
NEWEST = ("0.7.3", "0.7.4")
LIMIT, SCRATCH = Placeholder("limit"), Placeholder("scratch")


def before(first: str) -> tuple[str, ...]:
    return RELEASES[: RELEASES.index(first)]


@pytest.mark.parametrize(
    ("key", "given", "parameter", "older", "value", "newer"),
    [
        ("quantization.fp4_quantize", {}, "backend", before("0.7.3"), "cuda", "auto"),
        ("quantization.nvfp4_quantize", {}, "backend", before("0.7.3"), "cuda", "auto"),
        ("quantization.mxfp4_quantize", {"backend": "auto"}, "backend", before("0.7.3"), "cuda", "auto"),
        ("quantization.mxfp8_quantize", {"backend": "auto"}, "backend", before("0.7.3"), "cuda", "auto"),
        ("quantization.mxfp8_quantize", {"backend": "cute-dsl"}, "backend", (), None, "cute-dsl"),
        ("fused_moe.cutlass_fused_moe", {}, "use_fused_finalize", before("0.7.3"), True, None),
        ("fused_moe.cutlass_fused_moe", {"use_fused_finalize": False}, "use_fused_finalize", (), None, False),
        ("fused_moe.cutlass_fused_moe_workspace_size", {}, "use_fused_finalize", before("0.7.3"), True, None),
        ("gemm.mm_bf16", {"pdl": None}, "pdl", before("0.7.3"), False, None),
        ("gemm.mm_bf16", {"pdl": True}, "pdl", (), None, True),
        ("norm.rmsnorm_quant", {"enable_pdl": True}, "enable_pdl", before("0.7.2"), False, True),
        ("norm.fused_add_rmsnorm_quant", {}, "enable_pdl", before("0.7.2"), False, None),
        ("sm110_xqa.prepare", {}, "kernel", before("0.7.3"), "tcgen05", "auto"),
        ("fused_moe.bgmv_moe.prepare_bgmv_moe", {}, "backend", before("0.7.2"), "blackwell", "cake"),
    ],
)
def test_a_value_is_the_releases_own(
    release: str, key: str, given: dict[str, Any], parameter: str, older: tuple[str, ...], value: Any, newer: Any
) -> None:
    recorded = Recorded(key, passing=False)
    if recorded.function.__name__ == "native":  # not adapted here: the real function's own default counts
        assert recorded.parameters[parameter].default == (given.get(parameter, newer))
        return
    assert recorded.call(**given) == "reached"
    assert recorded.given is not None
    default = recorded.accepted[parameter].default
    assert recorded.given.get(parameter, default) == (value if release in older else newer)


def test_none_follows_torchs_deterministic_algorithms(release: str) -> None:
    recorded = Recorded("fused_moe.cutlass_fused_moe", passing=False)
    torch.use_deterministic_algorithms(True)
    try:
        recorded.call()
    finally:
        torch.use_deterministic_algorithms(False)
    assert recorded.given is not None
    assert recorded.given.get("use_fused_finalize") is (None if release in NEWEST else False)


@pytest.mark.parametrize(
    ("key", "given", "refused"),
    [
        ("fused_moe.trtllm_fp8_per_tensor_scale_moe", {"gemm1_clamp_limit": LIMIT}, before("0.7.2.post1")),
        ("fused_moe.cutlass_fused_moe", {"clamped_relu2_limit": LIMIT}, before("0.7.2")),
        ("fused_moe.cutlass_fused_moe", {"nvfp4_4over6": LIMIT}, before("0.7.3")),
        ("fused_moe.trtllm_fp4_block_scale_routed_moe", {"routing_metadata": LIMIT}, before("0.7.3")),
        ("fused_moe.trtllm_bf16_moe", {"workspace_buffer": SCRATCH}, ()),
        ("gemm.mm_fp4", {"batch_invariant": True}, before("0.7.3")),
        ("gemm.mm_fp4", {"batch_invariant": False}, ()),
        ("gemm.mm_fp4", {"backend": "cake"}, before("0.7.2")),
        ("gemm.mm_fp8", {"backend": "cublas"}, before("0.7.2.post1")),
        ("quantization.fp4_quantize", {"batch_invariant": True}, before("0.7.3")),
        ("comm.allreduce.create_allreduce_fusion_workspace", {"backend": "mnnvl-cutedsl"}, before("0.7.2.post1")),
        ("comm.allreduce.create_allreduce_fusion_workspace", {"rms_eps": 1e-5}, before("0.7.2.post1")),
        ("comm.trtllm_create_ipc_workspace_for_all_reduce_fusion", {"use_fp32_lamport": True}, before("0.7.2")),
        ("comm.trtllm_create_ipc_workspace_for_all_reduce_fusion", {"use_fp32_lamport": False}, ()),
        ("norm.layernorm_quant", {"enable_pdl": True}, ()),
        ("norm.gated_residual_rmsnorm", {"backend": "cute"}, before("0.7.3")),
        ("gdn_decode.gated_delta_rule_mtp", {"cache_replayssm": True}, before("0.7.2")),
        ("kda.recurrent_kda", {"backend": "ptx"}, before("0.7.2")),
        ("autotuner.autotune", {"tie_tolerance": 0.1}, before("0.7.3")),
        ("sparse.VariableBlockSparseAttentionWrapper.plan", {"q_scale": LIMIT}, before("0.7.3")),
    ],
)
def test_what_a_release_cannot_do_is_refused(
    release: str, key: str, given: dict[str, Any], refused: tuple[str, ...]
) -> None:
    recorded = Recorded(key, passing=False)
    ((parameter, value),) = given.items()
    if parameter not in recorded.accepted and release not in refused:
        assert recorded.call(**given) == "reached", "a hint"
        assert parameter not in (recorded.given or {})
        return
    assert recorded.call(**given) == ("refused" if release in refused else "reached")
    if release in refused:
        assert parameter in recorded.refusal
        assert f"installed is {release}" in recorded.refusal
    else:
        assert (recorded.given or {})[parameter] is value


class TestRenamed:
    KEY = "mla.get_prims_ts_batch_mla_decode_workspace_size"

    def test_both_names_reach_flashinfer(self) -> None:
        recorded = Recorded(self.KEY, passing=False)
        native = recorded.native_name("num_qo_heads")
        assert recorded.call(num_qo_heads=7) == "reached"
        assert (recorded.given or {})[native] == 7
        with pytest.warns(DeprecationWarning, match="num_heads is called num_qo_heads by the newest FlashInfer"):
            assert recorded.call(num_heads=8, num_qo_heads=recorded.parameters["num_qo_heads"].default) == "reached"
        assert (recorded.given or {})[native] == 8

    def test_not_both_at_once(self) -> None:
        recorded = Recorded(self.KEY, passing=False)
        with pytest.raises(UnsupportedArgument, match="num_qo_heads and num_heads, its former name, are both given"):
            recorded.function(1, num_qo_heads=7, num_heads=8)

    def test_neither(self) -> None:
        with pytest.raises(TypeError, match="missing required argument"):
            Recorded(self.KEY, passing=False).function(1)


class TestMegaMoeConfig:
    def make(self, **options: Any) -> Any:
        return moe_ep.Nvfp4CutedslMegaMoeConfig(intermediate_size=256, top_k=2, **options)

    def test_routing_weights_under_the_newest_name(self) -> None:
        config = self.make(apply_routing_weights_before_fc2=False)
        assert config.apply_routing_weights_before_fc2 is False
        assert self.make().apply_routing_weights_before_fc2 is True

    def test_and_under_the_former_one(self) -> None:
        with pytest.warns(DeprecationWarning, match="apply_routing_weights_before_fc2"):
            config = self.make(apply_topk_in_fc1=False)
        assert config.apply_routing_weights_before_fc2 is False

    def test_finalize_mode(self, release: str) -> None:
        modes = moe_ep.FinalizeMode
        assert [mode.name for mode in modes] == ["AUTO", "DEFAULT", "PERSISTENT", "CAKE", "NONE"]
        self.make(finalize_mode=modes.AUTO)
        if release in NEWEST:
            assert self.make(finalize_mode=modes.NONE).finalize_mode is modes.NONE
        else:
            with pytest.raises(UnsupportedArgument, match=r"finalize_mode=\): FlashInfer 0\.7\.4 and later have it"):
                self.make(finalize_mode=modes.NONE)

    def test_it_is_one_of_flashinfers(self) -> None:
        from flashinfer.moe_ep import Nvfp4CutedslMegaMoeConfig

        assert isinstance(self.make(), Nvfp4CutedslMegaMoeConfig)


class TestDispatch:
    """The bound of a round, which 0.7.3 renamed: engines written for either pass it under their name."""

    KEY = "moe_ep.NVLinkOneSidedAlltoAll.dispatch"

    def test_both_names_reach_flashinfer(self, release: str) -> None:
        recorded = Recorded(self.KEY)
        native = "runtime_max_tokens_per_rank" if release in NEWEST else "max_tokens_per_rank"
        recorded.call(runtime_max_tokens_per_rank=64)
        assert (recorded.given or {})[native] == 64
        with pytest.warns(DeprecationWarning, match="max_tokens_per_rank is called runtime_max_tokens_per_rank by"):
            recorded.call(max_tokens_per_rank=32)
        assert (recorded.given or {})[native] == 32
        recorded.call()
        assert (recorded.given or {})[native] is None

    def test_not_both_at_once(self) -> None:
        recorded = Recorded(self.KEY)
        assert recorded.call(runtime_max_tokens_per_rank=64, max_tokens_per_rank=64) == "refused"
        assert "are both given" in recorded.refusal

    def test_what_the_factory_makes_takes_both(self, release: str) -> None:
        if release == "0.7.1":
            pytest.skip("this release has no such factory")
        from flashinfer.moe_ep import NVLinkOneSidedAlltoAll

        made = object.__new__(NVLinkOneSidedAlltoAll)
        made.params = "kept"
        ours = expert_parallel.of_the_facade(made)
        assert ours is made
        assert type(made) is moe_ep.NVLinkOneSidedAlltoAll
        assert made.params == "kept"
        assert isinstance(made, NVLinkOneSidedAlltoAll)

    def test_another_backends_object_stays_what_it_is(self) -> None:
        other = Placeholder("other")
        assert type(expert_parallel.of_the_facade(other)) is Placeholder


def test_what_is_gone_says_where_to_go(release: str) -> None:
    if release not in NEWEST:
        assert flashinfer.comm.moe_a2a_dispatch is not None
        return
    with pytest.raises(ImportError, match=r"0\.7\.1 to 0\.7\.2\.post1 have it; installed is .* comm.MoeAlltoAll"):
        from flashinfer_compat.comm import moe_a2a_dispatch  # noqa: F401


@pytest.mark.parametrize("scales", [(None, None), (2.0, None), (None, 3.0), (2.0, 3.0)])
def test_the_sink_kernel_gets_the_scales_in_its_own(scales: tuple[float | None, float | None]) -> None:
    q_scale, k_scale = scales
    args, q_left, k_left = sinks.folded(("sinks", 0.5, "rest"), q_scale, k_scale)
    assert args == ("sinks", 0.5 * (q_scale or 1.0) * (k_scale or 1.0), "rest")
    assert (q_left, k_left) == (None, None)
    assert sinks.folded(("sinks",), q_scale, k_scale) == (("sinks",), q_scale, k_scale)


@pytest.mark.parametrize("name", ["gated_residual_rmsnorm", "gated_residual_next_rmsnorm", "rmsnorm_sigmoid_gate"])
def test_a_question_about_a_kernel_that_is_missing_is_answered(release: str, name: str) -> None:
    question = getattr(flashinfer.norm, f"supports_{name}")
    if release in before("0.7.2.post1"):
        assert question(*range(5 if name != "rmsnorm_sigmoid_gate" else 3)) is False
        assert not hasattr(flashinfer.norm, name)
        assert flashinfer.supports(f"norm.supports_{name}") is Support.EMULATED
        assert flashinfer.supports(f"norm.{name}") is Support.UNAVAILABLE
    else:
        assert hasattr(flashinfer.norm, name)
    if release not in NEWEST:
        assert Recorded(f"norm.supports_{name}", passing=False).call(backend="cute") == "answered"


class TestScalesInto:
    RESULT = torch.arange(6, dtype=torch.uint8)

    def test_a_tensor_of_the_callers(self) -> None:
        out = torch.zeros(6, dtype=torch.uint8)
        assert quantization.into(self.RESULT, out) is out
        assert out.tolist() == list(range(6))
        assert quantization.into(self.RESULT, None) is self.RESULT

    @pytest.mark.parametrize(
        "out", [torch.zeros(5, dtype=torch.uint8), torch.zeros(6), torch.zeros(12, dtype=torch.uint8)[::2]]
    )
    def test_that_does_not_fit(self, out: torch.Tensor) -> None:
        with pytest.raises(InvalidArgument, match="out "):
            quantization.into(self.RESULT, out)


def test_the_cached_scratch_of_gemm_base_is_where_it_went(release: str) -> None:
    import flashinfer.utils as native_utils
    from flashinfer_compat.gemm import gemm_base

    if release in NEWEST:
        vars(gemm_base).pop("_get_cache_buf", None)  # it warns once, and may have been read
        with pytest.warns(DeprecationWarning, match="use flashinfer.utils._get_cache_buf"):
            assert gemm_base._get_cache_buf is native_utils._get_cache_buf
    else:
        assert callable(gemm_base._get_cache_buf)
